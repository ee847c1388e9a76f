// DTK's libcudart.so.12: CUDA's names over the HIP runtime, so that both see one driver state.

#include <stddef.h>

#define FORWARD(name, parameters, arguments) \
  extern int hip##name parameters;           \
  __attribute__((visibility("default"))) int cuda##name parameters { return hip##name arguments; }

FORWARD(GetDeviceCount, (int* count), (count))
FORWARD(SetDevice, (int device), (device))
FORWARD(GetDevice, (int* device), (device))
FORWARD(DeviceSynchronize, (void), ())
FORWARD(MemGetInfo, (size_t* free_bytes, size_t* total_bytes), (free_bytes, total_bytes))
FORWARD(GetDeviceProperties, (void* properties, int device), (properties, device))
FORWARD(RuntimeGetVersion, (int* version), (version))
FORWARD(DriverGetVersion, (int* version), (version))
FORWARD(Malloc, (void** pointer, size_t bytes), (pointer, bytes))
FORWARD(Free, (void* pointer), (pointer))
FORWARD(GetLastError, (void), ())

extern const char* hipGetErrorString(int code);
__attribute__((visibility("default"))) const char* cudaGetErrorString(int code) { return hipGetErrorString(code); }
