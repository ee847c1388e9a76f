// Devices, streams and memory of the software vendor: what libc10_cuda gives to libtorch_cuda.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#define SOFTWARE_API __attribute__((visibility("default")))

namespace software {

constexpr c10::DeviceType kSelf = c10::DeviceType::CUDA;
constexpr int kMaxDevices = 64;

// Throws with the runtime's own words if `code` is an error; `call` names what was asked.
SOFTWARE_API void check(int code, const char* call);

// Where a kernel is launched, an error that somebody left behind surfaces, as with a real runtime.
SOFTWARE_API void check_launch();

// Devices of this process; 0 where there is no driver or no device, never an exception.
SOFTWARE_API c10::DeviceIndex device_count() noexcept;

// The calling thread's device.
SOFTWARE_API c10::DeviceIndex current_device();
SOFTWARE_API void set_device(c10::DeviceIndex device);

// Makes a device current, and the previous one again at the end.
struct OnDevice {
  explicit OnDevice(c10::DeviceIndex device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  c10::DeviceIndex before;
};

// `index` itself, or the current device for -1; throws for anything outside the range.
SOFTWARE_API c10::DeviceIndex resolve(c10::DeviceIndex index);

// Called once by the hooks' init(); the allocator gives nothing before.
SOFTWARE_API void mark_initialized() noexcept;
SOFTWARE_API bool is_initialized() noexcept;

// Waits for everything on `device` (-1: the current one).
SOFTWARE_API void synchronize(c10::DeviceIndex device);
SOFTWARE_API long runtime_version();

SOFTWARE_API c10::Stream current_stream(c10::DeviceIndex device);
SOFTWARE_API c10::Stream pool_stream(c10::DeviceIndex device, bool high_priority);
SOFTWARE_API c10::Stream new_stream(c10::DeviceIndex device);
// Makes `stream` the current one of its device in this thread; returns what was current there.
SOFTWARE_API c10::Stream exchange_stream(c10::Stream stream);
// The runtime's own handle; null for a default stream.
SOFTWARE_API void* native_stream(const c10::Stream& stream) noexcept;

SOFTWARE_API c10::Allocator* device_allocator() noexcept;
SOFTWARE_API c10::Allocator* pinned_allocator() noexcept;
SOFTWARE_API bool is_pinned(const void* pointer);

// Turns memory that a CPU kernel allocated into memory of `device`: counted there until it is
// freed.
SOFTWARE_API c10::DataPtr adopt_memory(c10::DataPtr memory, size_t bytes, c10::DeviceIndex device);

}  // namespace software
