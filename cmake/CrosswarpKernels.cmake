# crosswarp_add_kernels(<target> <source>...)
#
# Adds sources that hold kernels. They are C++ files; where CUDA is enabled they are compiled by
# nvcc, for the CPU and for the GPU at once, else by the host compiler for the CPU alone.
function(crosswarp_add_kernels target)
  target_sources(${target} PRIVATE ${ARGN})
  # Not CMAKE_CUDA_COMPILER: that one is in the cache, also for a parent that did not enable CUDA.
  if(NOT CMAKE_CUDA_COMPILER_LOADED)
    crosswarp_say_cpu_alone("this project does not enable CUDA")
    return()
  endif()
  # The package says; in our own build it is not set.
  if(DEFINED crosswarp_HAVE_CUDA AND NOT crosswarp_HAVE_CUDA)
    crosswarp_say_cpu_alone("the installed Crosswarp was built without CUDA")
    return()
  endif()
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CUDA)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda>)
  # CMake 3.25 does not know that nvcc speaks C++20; what is set below ends with the directory.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  endif()
endfunction()

# Once is enough, and our own build has a summary that says it.
function(crosswarp_say_cpu_alone why)
  get_property(said GLOBAL PROPERTY crosswarp_said_cpu_alone)
  if(NOT said AND NOT PROJECT_NAME STREQUAL "crosswarp")
    message(STATUS "Crosswarp: kernels are built for the CPU alone: ${why}")
    set_property(GLOBAL PROPERTY crosswarp_said_cpu_alone ON)
  endif()
endfunction()

# CMake 3.25 does not know that nvcc speaks C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
