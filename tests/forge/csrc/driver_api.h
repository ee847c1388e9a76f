// The runtime API as the torch libraries use it, whatever the vendor calls it.
//
// One small file per family of names (driver_glue.cpp) implements it; everything else is compiled
// once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace software::driver {

constexpr int kSuccess = 0;
constexpr int kOutOfMemory = 2;

// Each returns the runtime's error code, 0 for success. Sizes in bytes, elapsed time in
// milliseconds.
int device_count(int* count) noexcept;
int get_device(int* device) noexcept;
int set_device(int device) noexcept;
int device_synchronize() noexcept;
int memory_info(size_t* free_bytes, size_t* total_bytes) noexcept;
int allocate(void** pointer, size_t bytes) noexcept;
int release(void* pointer) noexcept;
int allocate_host(void** pointer, size_t bytes) noexcept;
int release_host(void* pointer) noexcept;
int account(int device, int64_t bytes) noexcept;
int stream_create(void** stream) noexcept;
int stream_query(void* stream) noexcept;
int stream_synchronize(void* stream) noexcept;
int stream_wait_event(void* stream, void* event) noexcept;
int event_create(void** event) noexcept;
int event_destroy(void* event) noexcept;
int event_record(void* event, void* stream) noexcept;
int event_query(void* event) noexcept;
int event_synchronize(void* event) noexcept;
int event_elapsed(float* milliseconds, void* first, void* second) noexcept;
int runtime_version(int* version) noexcept;
// Returns the calling thread's last error and forgets it.
int take_error() noexcept;
const char* error_string(int code) noexcept;

}  // namespace software::driver
