# crosswarp_add_kernels(<target> <source>...)
#
# Adds sources that hold kernels. They are C++ files; where CUDA is enabled they are compiled by
# nvcc, for the CPU and for the GPU at once, else by the host compiler for the CPU alone.
function(crosswarp_add_kernels target)
  target_sources(${target} PRIVATE ${ARGN})
  if(CMAKE_CUDA_COMPILER)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CUDA)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda>)
  endif()
endfunction()
