// What the files of the runtime share. Compiled with PREFIX, see runtime.c.

#ifndef FLAGOS_SOFTWARE_RUNTIME_H
#define FLAGOS_SOFTWARE_RUNTIME_H

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

// The calling thread's device.
extern _Thread_local int t_device;

// Notes the error for GetLastError, and returns it.
int fail(int code);

// Looks for devices, once; kSuccess if there are any.
int ready(void);

#endif
