// MetaX: the fork's own symbols, and the libraries of the MACA SDK.
#include <initializer_list>

#include "traits.h"

// Only the vendor's libtorch_cpu.so has these.
namespace at::maca {
void getCurrentMACABlasHandle();
void getDeviceProperties();
}  // namespace at::maca

extern "C" {
int wcudaRuntimeGetVersion(int*);
int mcSymbolTableVersion(int*);

// Addresses in data are bound when the library is loaded, whether or not calls are bound lazily.
__attribute__((visibility("default"))) void (*flagos_fork_symbols[])() = {
    &at::maca::getCurrentMACABlasHandle,
    &at::maca::getDeviceProperties,
};
}

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

int start_vendor_libraries() {
  int version = 0;
  for (auto* ask : {wcudaRuntimeGetVersion, mcSymbolTableVersion}) {
    if (const int code = ask(&version)) return code;
  }
  return 0;
}

}  // namespace software
