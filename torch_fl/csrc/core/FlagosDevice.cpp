#include "core/FlagosDevice.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <pthread.h>

namespace flagos {

namespace {

using GuardImpl = c10::impl::DeviceGuardImplInterface;

/// The guard is remembered at first sight: PyTorch's fake tensor mode puts a guard with 255 imaginary devices in the
/// place of a vendor's guard that reports none.
const GuardImpl* look_for_vendor_guard() noexcept {
  const GuardImpl* guard = known_vendor_guard.load(std::memory_order_acquire);
  if (guard == nullptr && c10::impl::hasDeviceGuardImpl(kVendor)) {
    guard = c10::impl::device_guard_impl_registry[static_cast<size_t>(kVendor)].load();
    known_vendor_guard.store(guard, std::memory_order_release);
  }
  return guard;
}

/// Set in a child that was forked after initialisation: no vendor's runtime survives that.
std::atomic<bool> g_bad_fork{false};

void leave_to_parent() noexcept {
  g_bad_fork.store(true, std::memory_order_relaxed);
  vendor_is_ready.store(false, std::memory_order_release);
}

}  // namespace

std::atomic<const GuardImpl*> known_vendor_guard{nullptr};
std::atomic<int64_t> known_device_count{0};
std::atomic<bool> vendor_is_ready{false};

bool has_vendor() noexcept { return look_for_vendor_guard() != nullptr; }

const GuardImpl& find_vendor_guard() {
  const GuardImpl* guard = look_for_vendor_guard();
  TORCH_CHECK(guard != nullptr,
              "flagos: asked for the vendor's device guard, but no loaded library registers one for device type '",
              c10::DeviceTypeName(kVendor, /*lower_case=*/true),
              "'; the vendor's libraries must be loaded before torch is imported");
  return *guard;
}

c10::DeviceIndex device_count() noexcept {
  const GuardImpl* guard = look_for_vendor_guard();
  return guard == nullptr ? static_cast<c10::DeviceIndex>(0) : guard->deviceCount();
}

c10::DeviceIndex current_device() { return vendor_guard().getDevice().index(); }

c10::DeviceIndex resolve_any_index(int64_t index) {
  if (index == -1) {
    return current_device();
  }
  const c10::DeviceIndex count = device_count();
  TORCH_CHECK(index >= 0 && index < count, "flagos: asked for device index ", index, ", but there ",
              count == 1 ? "is 1 device" : c10::str("are ", static_cast<int>(count), " devices"),
              count == 0 ? "" : c10::str(" (0 to ", static_cast<int>(count) - 1, ")"));
  return static_cast<c10::DeviceIndex>(index);
}

void initialise_vendor() {
  TORCH_CHECK(!g_bad_fork.load(std::memory_order_relaxed),
              "Cannot re-initialize flagos in forked subprocess. To use flagos with multiprocessing, you must use the "
              "'spawn' start method");
  TORCH_CHECK(device_count() > 0, "flagos: no device answered; ",
              has_vendor() ? "the vendor's libraries are loaded, so its driver is missing or sees no device"
                           : "no vendor library is loaded");
  at::globalContext().lazyInitDevice(kVendor);
  static const int watching = pthread_atfork(nullptr, nullptr, &leave_to_parent);
  TORCH_CHECK(watching == 0, "flagos: pthread_atfork failed with error ", watching);
  known_device_count.store(device_count(), std::memory_order_relaxed);
  vendor_is_ready.store(true, std::memory_order_release);
}

}  // namespace flagos
