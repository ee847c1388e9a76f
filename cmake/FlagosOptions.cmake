# Which backend this build is for. bundle/backends.py is the one list of backends; it reads the environment and prints the
# settings. -DACCELERATOR=... takes the place of the variable of that name.

set(ACCELERATOR "" CACHE STRING "Accelerator to build for; the environment's ACCELERATOR when empty")
if(ACCELERATOR)
  set(ENV{ACCELERATOR} "${ACCELERATOR}")
endif()

# flagos_quote_list(<variable> <item>...): the items as C or JSON strings, separated by commas.
function(flagos_quote_list variable)
  list(TRANSFORM ARGN REPLACE "(.+)" "\"\\1\"")
  list(JOIN ARGN ", " quoted)
  set(${variable} "${quoted}" PARENT_SCOPE)
endfunction()

set(settings "${CMAKE_CURRENT_BINARY_DIR}/FlagosBackend.cmake")
set(backends "${CMAKE_CURRENT_SOURCE_DIR}/cmake/backend_settings.py")
execute_process(
  COMMAND "${Python_EXECUTABLE}" -I "${backends}"
  OUTPUT_FILE "${settings}" ERROR_VARIABLE reason RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${reason}")
endif()
include("${settings}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  "${backends}" "${CMAKE_CURRENT_SOURCE_DIR}/bundle/backend.py" "${CMAKE_CURRENT_SOURCE_DIR}/bundle/backends.py"
  "${CMAKE_CURRENT_SOURCE_DIR}/bundle/selection.py")

# Compilers' checkers, e.g. -DFLAGOS_SANITIZE=address: the process that loads the libraries must preload the runtime of it.
set(FLAGOS_SANITIZE "" CACHE STRING "What to check at run time: address, undefined, thread; empty for nothing")
set_property(CACHE FLAGOS_SANITIZE PROPERTY STRINGS "" address undefined thread)
set(FLAGOS_SANITIZE_OPTIONS "")
if(FLAGOS_SANITIZE)
  # GCC itself says that sanitizers make it see uninitialised values where there are none.
  set(FLAGOS_SANITIZE_OPTIONS "-fsanitize=${FLAGOS_SANITIZE}" -fno-omit-frame-pointer -g1 -Wno-maybe-uninitialized)
endif()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# The version of the distribution, where the build entry knows it.
set(FLAGOS_PLUGIN_VERSION "${PROJECT_VERSION}")
if(SKBUILD_PROJECT_VERSION_FULL)
  set(FLAGOS_PLUGIN_VERSION "${SKBUILD_PROJECT_VERSION_FULL}")
endif()
set(FLAGOS_PYTHON_TAG "cp${Python_VERSION_MAJOR}${Python_VERSION_MINOR}")
flagos_quote_list(FLAGOS_RUNTIME_LIBRARIES_JSON ${FLAGOS_RUNTIME_LIBRARIES})
if(FLAGOS_FLAGGEMS_PYTHON)
  set(FLAGOS_FLAGGEMS_PYTHON_JSON true)
else()
  set(FLAGOS_FLAGGEMS_PYTHON_JSON false)
endif()

message(STATUS "flagos: backend ${FLAGOS_BACKEND} (ACCELERATOR=${FLAGOS_ACCELERATOR}), bundle ${FLAGOS_BUNDLE_DIR}")
message(STATUS "flagos: FLAGGEMS_PYTHON=${FLAGOS_FLAGGEMS_PYTHON} ${FLAGOS_SETTLED}")
message(STATUS "flagos: runtime '${FLAGOS_RUNTIME_PREFIX}' from ${FLAGOS_RUNTIME_LIBRARIES}")
