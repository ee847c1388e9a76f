# Imported targets torch::c10, torch::cpu and torch::python from the torch package of the building Python.
#
# torch is not imported, and its TorchConfig.cmake is not run: that one looks for a CUDA toolkit whenever torch is a CUDA
# build. The plugin is always compiled against stock torch.

set(FLAGOS_TORCH_MINOR_RANGE 10 13)

execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
    "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '', end='')"
  OUTPUT_VARIABLE torch_dir RESULT_VARIABLE status ERROR_VARIABLE reason)
if(NOT status EQUAL 0 OR NOT EXISTS "${torch_dir}/version.py")
  message(FATAL_ERROR "torch_fl: error: ${Python_EXECUTABLE} has no torch package; found '${torch_dir}' ${reason}
  hint: install stock torch from https://download.pytorch.org/whl/cpu for this Python, and build without isolation")
endif()

file(STRINGS "${torch_dir}/version.py" line REGEX "^__version__ *=")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+[^'\"]*" FLAGOS_TORCH_VERSION "${line}")
string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" base "${FLAGOS_TORCH_VERSION}")
list(GET FLAGOS_TORCH_MINOR_RANGE 0 lowest)
list(GET FLAGOS_TORCH_MINOR_RANGE 1 highest)
if(NOT CMAKE_MATCH_1 EQUAL 2 OR CMAKE_MATCH_2 LESS lowest OR CMAKE_MATCH_2 GREATER highest)
  message(FATAL_ERROR "torch_fl: error: torch ${FLAGOS_TORCH_VERSION} in ${torch_dir}; expected 2.${lowest} to 2.${highest}
  hint: install a stock torch of that range for ${Python_EXECUTABLE}")
endif()

# The C++ standard its headers need: written down only in its CMake package.
file(STRINGS "${torch_dir}/share/cmake/Torch/TorchConfig.cmake" line REGEX "CXX_STANDARD +[0-9]+")
string(REGEX MATCH "CXX_STANDARD +([0-9]+)" line "${line}")
if(NOT CMAKE_MATCH_1)
  message(FATAL_ERROR "torch_fl: error: ${torch_dir}/share/cmake/Torch/TorchConfig.cmake names no CXX_STANDARD")
endif()
set(FLAGOS_TORCH_STANDARD "${CMAKE_MATCH_1}")

# Which std::string it was compiled with: seen in the names of its symbols.
file(STRINGS "${torch_dir}/lib/libc10.so" line LIMIT_COUNT 1 REGEX "NSt7__cxx1112basic_string")
set(FLAGOS_CXX11_ABI 0)
if(line)
  set(FLAGOS_CXX11_ABI 1)
endif()

foreach(library c10 torch_cpu torch_python)
  string(REGEX REPLACE "^torch_" "" name "${library}")
  add_library(torch::${name} SHARED IMPORTED)
  set_target_properties(torch::${name} PROPERTIES
    IMPORTED_LOCATION "${torch_dir}/lib/lib${library}.so"
    IMPORTED_SONAME "lib${library}.so"
    INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=${FLAGOS_CXX11_ABI}"
    INTERFACE_COMPILE_FEATURES "cxx_std_${FLAGOS_TORCH_STANDARD}")
  target_include_directories(torch::${name} SYSTEM INTERFACE
    "${torch_dir}/include" "${torch_dir}/include/torch/csrc/api/include")
endforeach()

# Headers of torch and Python name their files in messages; the build machine's folders must not reach the libraries. The
# widest comes first, since of the maps that fit a path the last one counts; each also as ccache hands paths on, relative
# to the build tree.
set(FLAGOS_PREFIX_MAPS)
set(folders "${CMAKE_CURRENT_SOURCE_DIR}" "${CMAKE_CURRENT_BINARY_DIR}" "${torch_dir}/include")
set(names torch_fl build torch)
foreach(folder name IN ZIP_LISTS folders names)
  file(RELATIVE_PATH relative "${CMAKE_CURRENT_BINARY_DIR}" "${folder}")
  foreach(written ${folder} ${relative})
    list(APPEND FLAGOS_PREFIX_MAPS "-ffile-prefix-map=${written}=${name}")
  endforeach()
endforeach()
foreach(folder ${Python_INCLUDE_DIRS})
  list(APPEND FLAGOS_PREFIX_MAPS "-ffile-prefix-map=${folder}=python")
endforeach()

message(STATUS "flagos: torch ${FLAGOS_TORCH_VERSION} (C++${FLAGOS_TORCH_STANDARD}, CXX11 ABI ${FLAGOS_CXX11_ABI})")
