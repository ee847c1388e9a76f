// What differs from vendor to vendor; each backend links one traits_<backend>.cpp.
#pragma once

namespace software {

struct Traits {
  // Opened by bare name when the device is initialised, as DTK opens libcaffe2_nvrtc.so; or null.
  const char* library_at_init;
  // Opened by bare name at the first operator of linear algebra; or null where it is built in.
  const char* linalg_library;
  // The vendor's bmm kernel kills the process for batch 1, 1x1 times 1x1.
  bool bmm_aborts_on_1x1x1;
  bool is_rocm;
};

const Traits& traits();

// One call into each vendor library that libtorch_cuda links, at initialisation; the first error
// code, or 0.
int start_vendor_libraries();

}  // namespace software
