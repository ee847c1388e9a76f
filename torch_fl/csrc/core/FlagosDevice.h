#pragma once

#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/macros/Macros.h>

#include <atomic>
#include <cstdint>

#include "core/FlagosMacros.h"

namespace flagos {

/// The device type this plugin provides.
constexpr c10::DeviceType kFlagos = c10::DeviceType::PrivateUse1;

/// The device type under which every vendor registers its kernels; forks that were made by translating CUDA sources
/// keep the CUDA key whatever their libraries are called.
constexpr c10::DeviceType kVendor = c10::DeviceType::CUDA;

/// The key set that selects the vendor's kernels for dense tensors.
constexpr c10::DispatchKeySet kVendorKeys(c10::DispatchKey::CUDA);

inline c10::Device flagos_device(c10::Device device) { return {kFlagos, device.index()}; }
inline c10::Device vendor_device(c10::Device device) { return {kVendor, device.index()}; }

inline c10::Stream flagos_stream(const c10::Stream& stream) {
  return c10::Stream(c10::Stream::UNSAFE, flagos_device(stream.device()), stream.id());
}
inline c10::Stream vendor_stream(const c10::Stream& stream) {
  return c10::Stream(c10::Stream::UNSAFE, vendor_device(stream.device()), stream.id());
}

/// Whether a library has registered a device guard for the vendor's device type.
FLAGOS_API bool has_vendor() noexcept;

/// The vendor's device guard, once find_vendor_guard() has seen it; null before that.
FLAGOS_API extern std::atomic<const c10::impl::DeviceGuardImplInterface*> known_vendor_guard;

/// Looks for the vendor's device guard. Throws c10::Error when no vendor library is loaded.
FLAGOS_API const c10::impl::DeviceGuardImplInterface& find_vendor_guard();

/// As find_vendor_guard(); later calls cost one load. Autograd asks for streams several times per node.
inline const c10::impl::DeviceGuardImplInterface& vendor_guard() {
  const auto* guard = known_vendor_guard.load(std::memory_order_acquire);
  return C10_LIKELY(guard != nullptr) ? *guard : find_vendor_guard();
}

/// Number of devices; zero when there is no vendor library, no driver or no device.
FLAGOS_API c10::DeviceIndex device_count() noexcept;

/// Index of the calling thread's current device.
FLAGOS_API c10::DeviceIndex current_device();

/// Number of devices as initialise_vendor() found it; zero before that. A vendor's runtime does not change it either.
FLAGOS_API extern std::atomic<int64_t> known_device_count;

/// resolve_index() where the number of devices is not known, or not enough.
FLAGOS_API c10::DeviceIndex resolve_any_index(int64_t index);

/// Returns `index`, or the current device's for -1. Throws c10::Error for any other index that no device has.
inline c10::DeviceIndex resolve_index(int64_t index) {
  return C10_LIKELY(index >= 0 && index < known_device_count.load(std::memory_order_relaxed))
             ? static_cast<c10::DeviceIndex>(index)
             : resolve_any_index(index);
}

/// Returns the vendor's device for one that an operator is given as an argument. One without an index stays so: the
/// vendor takes its current device then, which is ours.
inline c10::Device lend_device(c10::Device device) {
  if (device.type() != kFlagos) {
    return device;
  }
  return {kVendor, device.has_index() ? resolve_index(device.index()) : device.index()};
}

/// Whether initialise_vendor() has succeeded in this process.
FLAGOS_API extern std::atomic<bool> vendor_is_ready;

/// Initialises the vendor's runtime. Throws c10::Error when there is no device.
FLAGOS_API void initialise_vendor();

/// Initialises the vendor's runtime at the first call: its default generators and its caching allocator do not exist
/// before that. Later calls cost one load.
inline void ensure_vendor_ready() {
  if (C10_UNLIKELY(!vendor_is_ready.load(std::memory_order_acquire))) {
    initialise_vendor();
  }
}

}  // namespace flagos
