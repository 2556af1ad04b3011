# The installed package: headers, library, command and what find_package(crosswarp) reads.
install(TARGETS crosswarp EXPORT crosswarpTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/crosswarp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET crosswarp_command)
  install(TARGETS crosswarp_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/crosswarp)
install(EXPORT crosswarpTargets NAMESPACE crosswarp:: DESTINATION ${package_dir})
configure_package_config_file(cmake/crosswarpConfig.cmake.in
  ${PROJECT_BINARY_DIR}/crosswarpConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/crosswarpConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/crosswarpConfig.cmake
              ${PROJECT_BINARY_DIR}/crosswarpConfigVersion.cmake
              cmake/CrosswarpKernels.cmake
        DESTINATION ${package_dir})
