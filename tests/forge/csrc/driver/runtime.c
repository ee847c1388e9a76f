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

#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices.h"

enum { kHeader = 64 };
static const uint64_t kAllocationMagic = 0x464c41474f53414cULL;
static const size_t kTotalMemory = (size_t)16 << 30;

typedef struct {
  uint64_t magic;
  size_t bytes;
  int device;
} Allocation;

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
_Thread_local int t_device = 0;
static _Thread_local int t_last_error = kSuccess;

int fail(int code) {
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
  if (init == NULL || count == NULL || init(0) != kSuccess || count(&g_devices) != kSuccess) g_devices = 0;
  if (g_devices > kMaxDevices) g_devices = kMaxDevices;
#else
  g_devices = software_devices();
#endif
  if (g_devices == 0) g_start_error = kNoDevice;
}

int ready(void) {
  pthread_once(&g_once, start);
  return g_start_error;
}

static int valid_device(int device) { return device >= 0 && device < g_devices; }

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

// All devices are memory of one host; a device is not its own peer.
API(DeviceCanAccessPeer)(int* can, int device, int peer) {
  const int status = ready();
  if (status != kSuccess) return fail(status);
  if (can == NULL) return fail(kInvalidValue);
  if (!valid_device(device) || !valid_device(peer)) return fail(kInvalidDevice);
  *can = device != peer;
  return kSuccess;
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
