# SPDX-License-Identifier: Apache-2.0
# What `make install` lays down: headers, shared libraries, the command, pkg-config and CMake files.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS radiance radiance_run EXPORT radianceTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS radiance_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES include/radiance.h include/radiance_run.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT radianceTargets NAMESPACE radiance:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/radiance)
configure_package_config_file(cmake/radianceConfig.cmake.in ${CMAKE_BINARY_DIR}/radianceConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/radiance)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/radianceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/radianceConfig.cmake ${CMAKE_BINARY_DIR}/radianceConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/radiance)
# The prefix is known only when installing, so the .pc files are made then.
foreach(name radiance radiance_run)
  install(CODE "
    set(PROJECT_VERSION ${PROJECT_VERSION})
    set(CMAKE_INSTALL_LIBDIR ${CMAKE_INSTALL_LIBDIR})
    set(CMAKE_INSTALL_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
    get_filename_component(CMAKE_INSTALL_PREFIX \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
    configure_file(${CMAKE_SOURCE_DIR}/cmake/${name}.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)")
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
