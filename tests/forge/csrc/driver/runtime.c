// The software device's runtime: the vendor's runtime API over host memory, as a plain C library.
//
// Compiled once per family of names, with
//   PREFIX            cuda, hip or mc: the first part of every function's name
//   DEVICE_NAME       what GetDeviceProperties reports
//   RUNTIME_VERSION   what RuntimeGetVersion and DriverGetVersion report
//   DRIVER_LIBRARY    optional: a driver library that is opened at the first call, as NVIDIA's
//                     runtime opens libcuda.so.1; without it there are no devices
//
// FLAGOS_SOFTWARE_DEVICES, read once, is the number of devices (default 2, at most 64).

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "devices.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define API(name) __attribute__((visibility("default"))) int JOIN(PREFIX, name)

enum {
  kSuccess = 0,
  kInvalidValue = 1,
  kMemoryAllocation = 2,
  kInsufficientDriver = 35,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidHandle = 400,
  kNotReady = 600,
};

enum { kHeader = 64 };
static const uint64_t kAllocationMagic = 0x464c41474f53414cULL;
static const uint64_t kStreamMagic = 0x464c41474f535354ULL;
static const uint64_t kEventMagic = 0x464c41474f534556ULL;
static const size_t kTotalMemory = (size_t)16 << 30;

typedef struct {
  uint64_t magic;
  size_t bytes;
  int device;
} Allocation;

typedef struct {
  uint64_t magic;
  int device;
} Stream;

typedef struct {
  uint64_t magic;
  int device;
  atomic_uint_least64_t recorded_at;  // nanoseconds; 0: never recorded
} Event;

// NVIDIA's and HIP's property blocks begin alike; the rest is zero here.
typedef struct {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luid_mask;
  size_t total_memory;
  int rest[184];
} Properties;

static pthread_once_t g_once = PTHREAD_ONCE_INIT;
static int g_devices = 0;
static int g_start_error = kSuccess;
static atomic_llong g_allocated[kMaxDevices];
static atomic_uint_least64_t g_clock;
static _Thread_local int t_device = 0;
static _Thread_local int t_last_error = kSuccess;

static int fail(int code) {
  t_last_error = code;
  return code;
}

static void start(void) {
#ifdef DRIVER_LIBRARY
  void* driver = dlopen(DRIVER_LIBRARY, RTLD_NOW);
  if (driver == NULL) {
    g_start_error = kInsufficientDriver;
    return;
  }
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*count)(int*) = (int (*)(int*))dlsym(driver, "cuDeviceGetCount");
  if (init == NULL || count == NULL || init(0) != kSuccess || count(&g_devices) != kSuccess)
    g_devices = 0;
  if (g_devices > kMaxDevices) g_devices = kMaxDevices;
#else
  g_devices = software_devices();
#endif
  if (g_devices == 0) g_start_error = kNoDevice;
}

static int ready(void) {
  pthread_once(&g_once, start);
  return g_start_error;
}

static int valid_device(int device) { return device >= 0 && device < g_devices; }

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  const uint64_t ns = (uint64_t)time.tv_sec * 1000000000ULL + (uint64_t)time.tv_nsec;
  // Two events never carry one time, so the time between them is never zero.
  uint64_t last = atomic_load(&g_clock);
  uint64_t next;
  do {
    next = ns > last ? ns : last + 1;
  } while (!atomic_compare_exchange_weak(&g_clock, &last, next));
  return next;
}

API(GetDeviceCount)(int* count) {
  if (count == NULL) return fail(kInvalidValue);
  const int status = ready();
  *count = status == kSuccess ? g_devices : 0;
  return status == kSuccess ? kSuccess : fail(status);
}

API(SetDevice)(int device) {
  const int status = ready();
  if (status != kSuccess) return fail(status);
  if (!valid_device(device)) return fail(kInvalidDevice);
  t_device = device;
  return kSuccess;
}

API(GetDevice)(int* device) {
  if (device == NULL) return fail(kInvalidValue);
  const int status = ready();
  if (status != kSuccess) return fail(status);
  *device = t_device;
  return kSuccess;
}

// Host memory is used synchronously, so there is never anything to wait for.
API(DeviceSynchronize)(void) {
  const int status = ready();
  return status == kSuccess ? kSuccess : fail(status);
}

API(MemGetInfo)(size_t* free_bytes, size_t* total_bytes) {
  if (free_bytes == NULL || total_bytes == NULL) return fail(kInvalidValue);
  const int status = ready();
  if (status != kSuccess) return fail(status);
  const long long used = atomic_load(&g_allocated[t_device]);
  *total_bytes = kTotalMemory;
  *free_bytes = used >= (long long)kTotalMemory ? 0 : kTotalMemory - (size_t)used;
  return kSuccess;
}

// Numbers of NVIDIA's enumeration (MACA follows it) and of HIP's.
API(DeviceGetAttribute)(int* value, int attribute, int device) {
  static const struct {
    int cuda, hip, value;
  } table[] = {
      {1, 56, 1024},  // threads per block
      {10, 87, 64},   // warp size
      {16, 63, 8},    // multiprocessors
      {75, 23, 8},    // compute capability, major
      {76, 61, 0},    // compute capability, minor
  };
  const int status = ready();
  if (status != kSuccess) return fail(status);
  if (value == NULL) return fail(kInvalidValue);
  if (!valid_device(device)) return fail(kInvalidDevice);
#ifdef HIP_ATTRIBUTES
  const int hip = 1;
#else
  const int hip = 0;
#endif
  for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); ++i) {
    if (attribute == (hip ? table[i].hip : table[i].cuda)) {
      *value = table[i].value;
      return kSuccess;
    }
  }
  return fail(kInvalidValue);
}

API(GetDeviceProperties)(Properties* properties, int device) {
  const int status = ready();
  if (status != kSuccess) return fail(status);
  if (properties == NULL) return fail(kInvalidValue);
  if (!valid_device(device)) return fail(kInvalidDevice);
  memset(properties, 0, sizeof(*properties));
  snprintf(properties->name, sizeof(properties->name), "%s", DEVICE_NAME);
  properties->uuid[15] = (char)device;
  properties->total_memory = kTotalMemory;
  return kSuccess;
}

#ifdef HIP_ATTRIBUTES
API(GetDevicePropertiesR0600)(Properties* properties, int device) {
  return JOIN(PREFIX, GetDeviceProperties)(properties, device);
}
#endif

#ifdef HAS_DEVICE_GET_NAME
API(DeviceGetName)(char* name, int length, int device) {
  const int status = ready();
  if (status != kSuccess) return fail(status);
  if (name == NULL || length <= 0) return fail(kInvalidValue);
  if (!valid_device(device)) return fail(kInvalidDevice);
  snprintf(name, (size_t)length, "%s", DEVICE_NAME);
  return kSuccess;
}
#endif

API(RuntimeGetVersion)(int* version) {
  if (version == NULL) return fail(kInvalidValue);
  *version = RUNTIME_VERSION;
  return kSuccess;
}

API(DriverGetVersion)(int* version) { return JOIN(PREFIX, RuntimeGetVersion)(version); }

API(GetLastError)(void) {
  const int code = t_last_error;
  t_last_error = kSuccess;
  return code;
}

__attribute__((visibility("default"))) const char* JOIN(PREFIX, GetErrorString)(int code) {
  switch (code) {
    case kSuccess:
      return "no error";
    case kInvalidValue:
      return "invalid argument";
    case kMemoryAllocation:
      return "out of memory";
    case kInsufficientDriver:
      return "driver version is insufficient for runtime version";
    case kNoDevice:
      return "no accelerator device is detected";
    case kInvalidDevice:
      return "invalid device ordinal";
    case kInvalidHandle:
      return "invalid resource handle";
    case kNotReady:
      return "device not ready";
    default:
      return "unrecognized error code";
  }
}

// Not part of any vendor's API: memory that the software device took over from the host's own
// kernels.
API(SoftwareAccount)(int device, long long bytes) {
  const int status = ready();
  if (status != kSuccess) return fail(status);
  if (!valid_device(device)) return fail(kInvalidDevice);
  atomic_fetch_add(&g_allocated[device], bytes);
  return kSuccess;
}

API(Malloc)(void** pointer, size_t bytes) {
  const int status = ready();
  if (status != kSuccess) return fail(status);
  if (pointer == NULL) return fail(kInvalidValue);
  *pointer = NULL;
  if (bytes == 0) return kSuccess;
  const long long before = atomic_fetch_add(&g_allocated[t_device], (long long)bytes);
  void* base = NULL;
  const int fits = bytes <= kTotalMemory && before + (long long)bytes <= (long long)kTotalMemory;
  if (!fits || posix_memalign(&base, kHeader, bytes + kHeader) != 0) {
    atomic_fetch_sub(&g_allocated[t_device], (long long)bytes);
    return fail(kMemoryAllocation);
  }
  Allocation* allocation = base;
  allocation->magic = kAllocationMagic;
  allocation->bytes = bytes;
  allocation->device = t_device;
  *pointer = (char*)base + kHeader;
  return kSuccess;
}

API(Free)(void* pointer) {
  if (pointer == NULL) return kSuccess;
  Allocation* allocation = (Allocation*)((char*)pointer - kHeader);
  if (allocation->magic != kAllocationMagic) return fail(kInvalidValue);
  allocation->magic = 0;
  atomic_fetch_sub(&g_allocated[allocation->device], (long long)allocation->bytes);
  free(allocation);
  return kSuccess;
}

API(MallocHost)(void** pointer, size_t bytes) {
  const int status = ready();
  if (status != kSuccess) return fail(status);
  if (pointer == NULL) return fail(kInvalidValue);
  *pointer = NULL;
  if (bytes == 0) return kSuccess;
  return posix_memalign(pointer, kHeader, bytes) == 0 ? kSuccess : fail(kMemoryAllocation);
}

API(FreeHost)(void* pointer) {
  free(pointer);
  return kSuccess;
}

API(Memcpy)(void* destination, const void* source, size_t bytes, int kind) {
  (void)kind;
  if (bytes != 0 && (destination == NULL || source == NULL)) return fail(kInvalidValue);
  if (bytes != 0) memcpy(destination, source, bytes);
  return kSuccess;
}

API(StreamCreate)(Stream** stream) {
  const int status = ready();
  if (status != kSuccess) return fail(status);
  if (stream == NULL) return fail(kInvalidValue);
  *stream = malloc(sizeof(Stream));
  if (*stream == NULL) return fail(kMemoryAllocation);
  (*stream)->magic = kStreamMagic;
  (*stream)->device = t_device;
  return kSuccess;
}

API(StreamDestroy)(Stream* stream) {
  if (stream == NULL || stream->magic != kStreamMagic) return fail(kInvalidHandle);
  stream->magic = 0;
  free(stream);
  return kSuccess;
}

// A null stream is the default stream.
API(StreamQuery)(Stream* stream) {
  if (stream != NULL && stream->magic != kStreamMagic) return fail(kInvalidHandle);
  return kSuccess;
}

API(StreamSynchronize)(Stream* stream) { return JOIN(PREFIX, StreamQuery)(stream); }

API(EventCreate)(Event** event) {
  const int status = ready();
  if (status != kSuccess) return fail(status);
  if (event == NULL) return fail(kInvalidValue);
  *event = malloc(sizeof(Event));
  if (*event == NULL) return fail(kMemoryAllocation);
  (*event)->magic = kEventMagic;
  (*event)->device = t_device;
  atomic_init(&(*event)->recorded_at, 0);
  return kSuccess;
}

API(EventDestroy)(Event* event) {
  if (event == NULL || event->magic != kEventMagic) return fail(kInvalidHandle);
  event->magic = 0;
  free(event);
  return kSuccess;
}

API(EventRecord)(Event* event, Stream* stream) {
  if (event == NULL || event->magic != kEventMagic) return fail(kInvalidHandle);
  if (stream != NULL && stream->magic != kStreamMagic) return fail(kInvalidHandle);
  atomic_store(&event->recorded_at, now());
  return kSuccess;
}

API(EventQuery)(Event* event) {
  if (event == NULL || event->magic != kEventMagic) return fail(kInvalidHandle);
  return kSuccess;
}

API(EventSynchronize)(Event* event) { return JOIN(PREFIX, EventQuery)(event); }

API(StreamWaitEvent)(Stream* stream, Event* event, unsigned flags) {
  if (flags != 0) return fail(kInvalidValue);
  if (stream != NULL && stream->magic != kStreamMagic) return fail(kInvalidHandle);
  return JOIN(PREFIX, EventQuery)(event);
}

// Milliseconds.
API(EventElapsedTime)(float* elapsed, Event* first, Event* second) {
  if (elapsed == NULL) return fail(kInvalidValue);
  if (first == NULL || second == NULL || first->magic != kEventMagic ||
      second->magic != kEventMagic) {
    return fail(kInvalidHandle);
  }
  const uint64_t begin = atomic_load(&first->recorded_at);
  const uint64_t end = atomic_load(&second->recorded_at);
  if (begin == 0 || end == 0) return fail(kInvalidHandle);
  *elapsed = (float)((double)(int64_t)(end - begin) / 1e6);
  return kSuccess;
}
