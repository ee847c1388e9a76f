// The software device's driver library (libcuda.so.1): what a runtime asks before it offers
// devices.
//
// Compiled with DEVICE_NAME and RUNTIME_VERSION, as runtime.c is.
// FLAGOS_SOFTWARE_DEVICES, read once, is the number of devices (default 2, at most 64).

#include <pthread.h>
#include <stdio.h>

#include "devices.h"

#define API __attribute__((visibility("default"))) int

enum { kSuccess = 0, kInvalidValue = 1, kNotInitialized = 3, kNoDevice = 100, kInvalidDevice = 101 };

static pthread_once_t g_once = PTHREAD_ONCE_INIT;
static int g_devices = -1;

static void read_environment(void) { g_devices = software_devices(); }

API cuInit(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  pthread_once(&g_once, read_environment);
  return g_devices > 0 ? kSuccess : kNoDevice;
}

API cuDriverGetVersion(int* version) {
  if (version == NULL) return kInvalidValue;
  *version = RUNTIME_VERSION;
  return kSuccess;
}

API cuDeviceGetCount(int* count) {
  if (count == NULL) return kInvalidValue;
  if (g_devices < 0) return kNotInitialized;
  *count = g_devices;
  return kSuccess;
}

API cuDeviceGetName(char* name, int length, int device) {
  if (name == NULL || length <= 0) return kInvalidValue;
  if (g_devices < 0) return kNotInitialized;
  if (device < 0 || device >= g_devices) return kInvalidDevice;
  snprintf(name, (size_t)length, "%s", DEVICE_NAME);
  return kSuccess;
}
