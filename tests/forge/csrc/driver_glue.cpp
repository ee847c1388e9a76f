// driver_api.h over one vendor's names; compiled with RUNTIME_PREFIX=cuda, hip or mc.
#include "driver_api.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define RUNTIME(name) JOIN(RUNTIME_PREFIX, name)

extern "C" {
int RUNTIME(GetDeviceCount)(int*);
int RUNTIME(GetDevice)(int*);
int RUNTIME(SetDevice)(int);
int RUNTIME(DeviceSynchronize)(void);
int RUNTIME(MemGetInfo)(size_t*, size_t*);
int RUNTIME(Malloc)(void**, size_t);
int RUNTIME(Free)(void*);
int RUNTIME(MallocHost)(void**, size_t);
int RUNTIME(FreeHost)(void*);
int RUNTIME(SoftwareAccount)(int, long long);
int RUNTIME(StreamCreate)(void**);
int RUNTIME(StreamQuery)(void*);
int RUNTIME(StreamSynchronize)(void*);
int RUNTIME(StreamWaitEvent)(void*, void*, unsigned);
int RUNTIME(EventCreate)(void**);
int RUNTIME(EventDestroy)(void*);
int RUNTIME(EventRecord)(void*, void*);
int RUNTIME(EventQuery)(void*);
int RUNTIME(EventSynchronize)(void*);
int RUNTIME(EventElapsedTime)(float*, void*, void*);
int RUNTIME(RuntimeGetVersion)(int*);
int RUNTIME(GetLastError)(void);
const char* RUNTIME(GetErrorString)(int);
}

namespace software::driver {

int device_count(int* count) noexcept { return RUNTIME(GetDeviceCount)(count); }
int get_device(int* device) noexcept { return RUNTIME(GetDevice)(device); }
int set_device(int device) noexcept { return RUNTIME(SetDevice)(device); }
int device_synchronize() noexcept { return RUNTIME(DeviceSynchronize)(); }
int memory_info(size_t* free_bytes, size_t* total_bytes) noexcept {
  return RUNTIME(MemGetInfo)(free_bytes, total_bytes);
}
int allocate(void** pointer, size_t bytes) noexcept { return RUNTIME(Malloc)(pointer, bytes); }
int release(void* pointer) noexcept { return RUNTIME(Free)(pointer); }
int allocate_host(void** pointer, size_t bytes) noexcept { return RUNTIME(MallocHost)(pointer, bytes); }
int release_host(void* pointer) noexcept { return RUNTIME(FreeHost)(pointer); }
int account(int device, int64_t bytes) noexcept { return RUNTIME(SoftwareAccount)(device, bytes); }
int stream_create(void** stream) noexcept { return RUNTIME(StreamCreate)(stream); }
int stream_query(void* stream) noexcept { return RUNTIME(StreamQuery)(stream); }
int stream_synchronize(void* stream) noexcept { return RUNTIME(StreamSynchronize)(stream); }
int stream_wait_event(void* stream, void* event) noexcept { return RUNTIME(StreamWaitEvent)(stream, event, 0); }
int event_create(void** event) noexcept { return RUNTIME(EventCreate)(event); }
int event_destroy(void* event) noexcept { return RUNTIME(EventDestroy)(event); }
int event_record(void* event, void* stream) noexcept { return RUNTIME(EventRecord)(event, stream); }
int event_query(void* event) noexcept { return RUNTIME(EventQuery)(event); }
int event_synchronize(void* event) noexcept { return RUNTIME(EventSynchronize)(event); }
int event_elapsed(float* milliseconds, void* first, void* second) noexcept {
  return RUNTIME(EventElapsedTime)(milliseconds, first, second);
}
int runtime_version(int* version) noexcept { return RUNTIME(RuntimeGetVersion)(version); }
int take_error() noexcept { return RUNTIME(GetLastError)(); }
const char* error_string(int code) noexcept { return RUNTIME(GetErrorString)(code); }

}  // namespace software::driver
