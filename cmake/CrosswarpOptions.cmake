# What can be switched, what was found, and the summary that says both.

option(CROSSWARP_CHECKED "CPU kernels report scopes that are too narrow; deterministic schedules" OFF)
option(CROSSWARP_WERROR "Warnings are errors" OFF)
option(CROSSWARP_TOOLS "Build the crosswarp command" ${PROJECT_IS_TOP_LEVEL})
option(CROSSWARP_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(CROSSWARP_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
set(CROSSWARP_SANITIZE "" CACHE STRING "Sanitizers for everything, e.g. thread or address,undefined")
set(CROSSWARP_CUDA AUTO CACHE STRING "GPU support: AUTO (when a CUDA compiler is found), ON, OFF")
set_property(CACHE CROSSWARP_CUDA PROPERTY STRINGS AUTO ON OFF)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# crosswarp_note(<name> <on|off> <why>): one line of the summary.
function(crosswarp_note name state why)
  string(LENGTH "${name}" length)
  math(EXPR pad "22 - ${length}")
  string(REPEAT " " ${pad} spaces)
  set_property(GLOBAL APPEND_STRING PROPERTY crosswarp_summary "  ${name}${spaces}${state}\t${why}\n")
endfunction()

function(crosswarp_print_summary)
  get_property(lines GLOBAL PROPERTY crosswarp_summary)
  message(STATUS "Crosswarp ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\n${lines}")
endfunction()

# ---- CUDA: a language like another; no GPU is looked for
set(CROSSWARP_HAVE_CUDA OFF)
if(CROSSWARP_CUDA STREQUAL "OFF")
  crosswarp_note(cuda off "CROSSWARP_CUDA=OFF")
else()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(CROSSWARP_HAVE_CUDA ON)
    crosswarp_note(cuda on "nvcc ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
  elseif(CROSSWARP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CROSSWARP_CUDA=ON, but no CUDA compiler was found; put nvcc on PATH or set CUDACXX")
  else()
    crosswarp_note(cuda off "no CUDA compiler found (put nvcc on PATH or set CUDACXX)")
  endif()
endif()

# ---- libraries: found or left out, never fetched
find_package(Threads REQUIRED)

set(CROSSWARP_HAVE_FIBERS OFF)
find_package(Boost 1.70 QUIET COMPONENTS context)
if(Boost_CONTEXT_FOUND)
  set(CROSSWARP_HAVE_FIBERS ON)
  crosswarp_note(fibers on "Boost.Context ${Boost_VERSION_STRING}")
else()
  crosswarp_note(fibers off "no Boost.Context (libboost-context-dev): kernel threads are OS threads")
endif()

find_package(PkgConfig QUIET)
set(CROSSWARP_HAVE_PMIX OFF)
if(PkgConfig_FOUND)
  pkg_check_modules(PMIX QUIET IMPORTED_TARGET pmix)
endif()
if(PMIX_FOUND)
  set(CROSSWARP_HAVE_PMIX ON)
  crosswarp_note(pmix on "PMIx ${PMIX_VERSION}: starts under mpirun and srun")
else()
  crosswarp_note(pmix off "no PMIx (libpmix-dev): not under mpirun or srun")
endif()

set(CROSSWARP_HAVE_HWLOC OFF)
if(PkgConfig_FOUND)
  pkg_check_modules(HWLOC QUIET IMPORTED_TARGET hwloc)
endif()
if(HWLOC_FOUND)
  set(CROSSWARP_HAVE_HWLOC ON)
  crosswarp_note(topology on "hwloc ${HWLOC_VERSION}")
else()
  crosswarp_note(topology off "no hwloc (libhwloc-dev): info shows no topology")
endif()

if(CROSSWARP_TOOLS)
  find_package(CLI11 QUIET)
  find_package(nlohmann_json QUIET)
  find_package(fmt QUIET)
  if(CLI11_FOUND AND nlohmann_json_FOUND AND fmt_FOUND)
    crosswarp_note(command on "CLI11 ${CLI11_VERSION}, nlohmann-json ${nlohmann_json_VERSION}, fmt ${fmt_VERSION}")
  else()
    set(CROSSWARP_TOOLS OFF)
    crosswarp_note(command off "needs CLI11, nlohmann-json and fmt (libcli11-dev nlohmann-json3-dev libfmt-dev)")
  endif()
else()
  crosswarp_note(command off "CROSSWARP_TOOLS=OFF")
endif()

if(CROSSWARP_TESTS)
  find_package(GTest QUIET)
  if(GTest_FOUND)
    crosswarp_note(tests on "GoogleTest ${GTest_VERSION}")
  else()
    set(CROSSWARP_TESTS OFF)
    crosswarp_note(tests off "no GoogleTest (libgtest-dev libgmock-dev)")
  endif()
endif()

if(CROSSWARP_CHECKED)
  crosswarp_note(checked on "scope checker, deterministic schedules")
else()
  crosswarp_note(checked off "CROSSWARP_CHECKED=OFF")
endif()
if(CROSSWARP_SANITIZE)
  crosswarp_note(sanitizers on "${CROSSWARP_SANITIZE}")
endif()

# ---- flags for our own code
add_library(crosswarp_flags INTERFACE)
target_compile_options(crosswarp_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra --extended-lambda -diag-suppress=20012,177>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns about std::string's own operator+ when it optimises (bug 105651).
  target_compile_options(crosswarp_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wno-restrict>)
endif()
if(CROSSWARP_WERROR)
  target_compile_options(crosswarp_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
if(CROSSWARP_SANITIZE)
  # Without vptr: that check opens a pipe, and calls an object invalid when no descriptor is left,
  # which is a case that the tests make.
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${CROSSWARP_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=vptr>
                      $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${CROSSWARP_SANITIZE})
endif()
