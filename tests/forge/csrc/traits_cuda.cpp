// NVIDIA: device libraries beside the stock core.
#include "traits.h"

namespace software {

const Traits& traits() {
  static const Traits instance{
      .library_at_init = nullptr,
      .linalg_library = "libtorch_cuda_linalg.so",
      .bmm_aborts_on_1x1x1 = false,
      .is_rocm = false,
  };
  return instance;
}

int start_vendor_libraries() { return 0; }

}  // namespace software
