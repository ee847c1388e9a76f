// T-Head PPU: CUDA's names over the vendor's own runtime.
#include <initializer_list>

#include "traits.h"

extern "C" {
int cuDriverGetVersion(int*);
int ncclGetVersion(int*);
}

namespace software {

const Traits& traits() {
  static const Traits instance{
      .library_at_init = nullptr,
      .linalg_library = "libtorch_cuda_linalg.so",
      .bmm_aborts_on_1x1x1 = true,
      .is_rocm = false,
  };
  return instance;
}

int start_vendor_libraries() {
  int version = 0;
  for (auto* ask : {cuDriverGetVersion, ncclGetVersion}) {
    if (const int code = ask(&version)) return code;
  }
  return 0;
}

}  // namespace software
