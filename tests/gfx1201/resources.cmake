# SPDX-License-Identifier: Apache-2.0
# cmake -DTOOL=gfx1201_resources.cmake -DFOLDER=here -P resources.cmake: the tool takes good.s for what it is and refuses each of
# the others, naming what is wrong. The files are hand-made pieces of the compiler's output.
function(run name)
  execute_process(COMMAND ${CMAKE_COMMAND} -DASM=${FOLDER}/${name}.s -DOUT=resources_${name}.inc -P ${TOOL}
                  RESULT_VARIABLE code ERROR_VARIABLE text)
  set(code ${code} PARENT_SCOPE)
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  set(text "${text}" PARENT_SCOPE)
endfunction()
run(good)
if(code)
  message(FATAL_ERROR "good.s is refused: ${text}")
endif()
file(READ resources_good.inc row)
if(NOT row STREQUAL "{\"rdk_t\", 3, 6, 1024, 0, 0, 80, 16, 24},\n")
  message(FATAL_ERROR "good.s: ${row}")
endif()
foreach(bad "flat|rdk_t: flat_load_b32" "scratch|rdk_t: 0 VGPR and 0 SGPR spills, 16 bytes of scratch"
        "spill|rdk_t: 7 VGPR and 0 SGPR spills" "lds|rdk_t: 65552 bytes of LDS, at most 65536")
  string(REPLACE "|" ";" pair ${bad})
  list(GET pair 0 name)
  list(GET pair 1 expected)
  run(${name})
  string(FIND "${text}" "${expected}" at)
  if(NOT code OR at LESS 0)
    message(FATAL_ERROR "${name}.s: ${code}: ${text}: needs ${expected}")
  endif()
endforeach()
