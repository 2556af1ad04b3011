# Builds and runs the consumer next to this file, as a test:
#   cmake -DWAY=installed|subdirectory -DSOURCE=<source tree> -DBINARY=<its build tree>
#         -DWORK=<scratch directory> [-DARGS=<what the consumer's configure gets, a list>]
#         [-DCONFIG=<build type>] -P run.cmake
cmake_minimum_required(VERSION 3.24)
foreach(name IN ITEMS WAY SOURCE BINARY WORK)
  if(NOT ${name})
    message(FATAL_ERROR "run.cmake needs -D${name}=")
  endif()
endforeach()
if(NOT CONFIG)
  set(CONFIG Release)
endif()

function(step what)
  message(STATUS "${what}")
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what}: failed (${result})")
  endif()
endfunction()

# Nothing of an earlier run may help this one.
file(REMOVE_RECURSE ${WORK})
if(WAY STREQUAL "installed")
  step("Installing" ${CMAKE_COMMAND} --install ${BINARY} --prefix ${WORK}/prefix --config ${CONFIG})
  set(from -DCMAKE_PREFIX_PATH=${WORK}/prefix)
elseif(WAY STREQUAL "subdirectory")
  set(from -DCROSSWARP_SOURCE=${SOURCE})
else()
  message(FATAL_ERROR "WAY is installed or subdirectory, not '${WAY}'")
endif()

step("Configuring the consumer (${WAY})" ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/build
     -DCMAKE_BUILD_TYPE=${CONFIG} ${from} ${ARGS})
step("Building the consumer" ${CMAKE_COMMAND} --build ${WORK}/build)
step("Running the consumer" ${WORK}/build/consumer)
if(WAY STREQUAL "installed" AND EXISTS ${WORK}/prefix/bin/crosswarp)
  step("Running the installed command" ${WORK}/prefix/bin/crosswarp --version)
endif()
