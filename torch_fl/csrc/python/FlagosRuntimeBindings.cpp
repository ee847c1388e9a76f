#include "python/FlagosRuntimeBindings.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include <array>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include "runtime/flagos.h"

namespace flagos {

namespace {

constexpr std::size_t kNameBytes = 256;
constexpr const char* kRuntimeLibraries[] = {FLAGOS_RUNTIME_LIBRARIES};

#define FLAGOS_CHECK(call)                                                                         \
  do {                                                                                             \
    const flagosStatus flagos_status = (call);                                                     \
    TORCH_CHECK(flagos_status == FLAGOS_SUCCESS, "flagos: ", flagosErrorText(flagos_status), ": ", \
                flagosLastErrorText());                                                            \
  } while (false)

void open() { FLAGOS_CHECK(flagosOpen(FLAGOS_RUNTIME_PREFIX, kRuntimeLibraries, std::size(kRuntimeLibraries))); }

std::string device_name(int device) {
  open();
  std::array<char, kNameBytes> name{};
  FLAGOS_CHECK(flagosDeviceName(device, name.data(), name.size()));
  return name.data();
}

std::pair<std::size_t, std::size_t> memory_info(int device) {
  open();
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  FLAGOS_CHECK(flagosMemoryInfo(device, &free_bytes, &total_bytes));
  return {free_bytes, total_bytes};
}

std::pair<int, int> capability(int device) {
  open();
  int major = 0;
  int minor = 0;
  FLAGOS_CHECK(flagosDeviceCapability(device, &major, &minor));
  return {major, minor};
}

int multiprocessors(int device) {
  open();
  int count = 0;
  FLAGOS_CHECK(flagosMultiprocessorCount(device, &count));
  return count;
}

bool can_access_peer(int device, int peer) {
  open();
  int can = 0;
  FLAGOS_CHECK(flagosCanAccessPeer(device, peer, &can));
  return can != 0;
}

int driver_version() {
  open();
  int version = 0;
  FLAGOS_CHECK(flagosDriverVersion(&version));
  return version;
}

int runtime_version() {
  open();
  int version = 0;
  FLAGOS_CHECK(flagosRuntimeVersion(&version));
  return version;
}

}  // namespace

void bind_runtime(pybind11::module_& module) {
  module.def("_device_name", torch::wrap_pybind_function(&device_name));
  module.def("_memory_info", torch::wrap_pybind_function(&memory_info));
  module.def("_device_capability", torch::wrap_pybind_function(&capability));
  module.def("_multiprocessor_count", torch::wrap_pybind_function(&multiprocessors));
  module.def("_can_access_peer", torch::wrap_pybind_function(&can_access_peer));
  module.def("_driver_version", torch::wrap_pybind_function(&driver_version));
  module.def("_runtime_version", torch::wrap_pybind_function(&runtime_version));
}

}  // namespace flagos
