// Hygon DCU: HIP under CUDA's dispatch key; the fork's fused operators; nvrtc at initialisation.
#include <initializer_list>

#include "traits.h"

// Only the vendor's libtorch_cpu.so has these.
namespace at::_ops {
struct native_fuse_layer_norm {
  static void call();
};
struct native_fuse_bias_gelu {
  static void call();
};
}  // namespace at::_ops

extern "C" {
int miopenGetVersion(int*);
int rocblas_get_version(int*);
int magma_version(int*);

// Addresses in data are bound when the library is loaded, whether or not calls are bound lazily.
__attribute__((visibility("default"))) void (*flagos_fork_symbols[])() = {
    &at::_ops::native_fuse_layer_norm::call,
    &at::_ops::native_fuse_bias_gelu::call,
};
}

namespace software {

const Traits& traits() {
  static const Traits instance{
      .library_at_init = "libcaffe2_nvrtc.so",
      .linalg_library = nullptr,
      .bmm_aborts_on_1x1x1 = false,
      .is_rocm = true,
  };
  return instance;
}

int start_vendor_libraries() {
  int version = 0;
  for (auto* ask : {miopenGetVersion, rocblas_get_version, magma_version}) {
    if (const int code = ask(&version)) return code;
  }
  return 0;
}

}  // namespace software
