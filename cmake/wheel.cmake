# SPDX-License-Identifier: Apache-2.0
# RADIANCE_WHEEL: what the Python wheel needs of the build. One file without versioned links (wheels hold no symlinks),
# small libraries as archives, and cJSON, which Debian ships as a shared object alone, beside the command.
foreach(library PCRE2:pcre2-8 UTF8PROC:utf8proc)
  string(REPLACE ":" ";" pair ${library})
  list(GET pair 0 prefix)
  list(GET pair 1 name)
  find_library(${prefix}_ARCHIVE lib${name}.a REQUIRED)
  set(${prefix}_LINK_LIBRARIES ${${prefix}_ARCHIVE})
endforeach()
find_library(CJSON_ARCHIVE libcjson.a)
if(CJSON_ARCHIVE)
  set(CJSON_LINK_LIBRARIES ${CJSON_ARCHIVE})
endif()
add_compile_definitions(PCRE2_STATIC UTF8PROC_STATIC)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
