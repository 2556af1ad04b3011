# crosswarp_header_test()
#
# Adds the target `crosswarp_header_test`, which is not part of `all`: one source file for each
# public header, that includes it and nothing else (twice, for the include guard). Bodies in impl/
# are no public headers. Where CUDA is enabled, what kernels include is compiled as CUDA as well.
function(crosswarp_header_test)
  set(include_dir ${PROJECT_SOURCE_DIR}/include)
  set(output_dir ${CMAKE_CURRENT_BINARY_DIR}/header_test)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${include_dir} ${include_dir}/crosswarp/*.hpp)
  list(FILTER headers EXCLUDE REGEX "/impl/")

  add_library(crosswarp_header_test OBJECT EXCLUDE_FROM_ALL)
  target_link_libraries(crosswarp_header_test PRIVATE crosswarp crosswarp_flags)
  # Only whether they compile is asked.
  target_compile_options(crosswarp_header_test PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0 -g0>)
  foreach(header IN LISTS headers)
    string(MAKE_C_IDENTIFIER "${header}" name)
    set(source ${output_dir}/${name}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include <${header}>\n#include <${header}>\n")
    target_sources(crosswarp_header_test PRIVATE ${source})
    if(CROSSWARP_HAVE_CUDA AND header MATCHES "/device/|/launch\\.hpp$|/world_launch\\.hpp$")
      set(source ${output_dir}/${name}.cu)
      file(CONFIGURE OUTPUT ${source} CONTENT "#include <${header}>\n#include <${header}>\n")
      target_sources(crosswarp_header_test PRIVATE ${source})
    endif()
  endforeach()
  if(CROSSWARP_HAVE_CUDA)
    # Whether a header stands alone does not depend on the architecture: one is enough.
    list(GET CMAKE_CUDA_ARCHITECTURES -1 architecture)
    set_target_properties(crosswarp_header_test PROPERTIES CUDA_ARCHITECTURES "${architecture}")
  endif()
endfunction()
