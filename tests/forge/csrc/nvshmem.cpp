// libtorch_nvshmem.so: uses libc10_cuda without naming it in DT_NEEDED, as the real one does.
#include "device.h"

namespace software {
SOFTWARE_API c10::DeviceIndex nvshmem_devices() { return device_count(); }
}  // namespace software
