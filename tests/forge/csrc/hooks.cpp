// CUDAHooks: what libtorch_cpu asks of the CUDA library.
#include <ATen/DynamicLibrary.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/Registry.h>

#include <string>

#include "device.h"
#include "generator.h"
#include "traits.h"

namespace software {
namespace {

void open_library_at_init() {
  if (traits().library_at_init == nullptr) return;
  static at::DynamicLibrary library(traits().library_at_init, nullptr, /*leak_handle=*/true);
  using Load = int (*)();
  auto* load = reinterpret_cast<Load>(library.sym("load_nvrtc"));
  check(load(), traits().library_at_init);
}

struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs /*unused*/) {}

  void init() const override {
    TORCH_CHECK(device_count() > 0, "No CUDA GPUs are available");
    open_library_at_init();
    check(start_vendor_libraries(), "start the vendor's libraries");
    create_default_generators();
    mark_initialized();
  }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    TORCH_CHECK(device >= 0 && device < device_count(), "hasPrimaryContext expects a valid device index, got ",
                static_cast<int>(device));
    return is_initialized();
  }
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const auto before = current_device();
    set_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }

  bool hasCUDA() const override { return device_count() > 0; }
  bool hasCUDART() const override { return true; }
  bool hasROCM() const override { return traits().is_rocm; }
  int getNumGPUs() const override { return device_count(); }
  c10::DeviceIndex current_device() const override { return software::current_device(); }
  void deviceSynchronize(c10::DeviceIndex device) const override { synchronize(device); }
  long versionCUDART() const override { return runtime_version(); }
  std::string showConfig() const override { return "software device over host memory"; }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return new_generator(device); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Allocator* getCUDADeviceAllocator() const override { return device_allocator(); }
};

}  // namespace
}  // namespace software

namespace at {
using software::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
