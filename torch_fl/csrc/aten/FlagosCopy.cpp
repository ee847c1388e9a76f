#include <ATen/core/Tensor.h>
#include <ATen/ops/copy_ops.h>
#include <torch/library.h>

#include "core/FlagosUnboxed.h"

namespace flagos {

namespace {

/// Every copy from or to flagos ends here: from and to the CPU, between devices, with conversion of type and layout.
///
/// It is registered for copy_ itself, not only for _copy_from, to which PyTorch's own copy_ would come down: a
/// conjugated tensor reaches copy_ as it is, but is resolved on its way to _copy_from, by a copy, without end.
using Copy = Unboxed<at::_ops::copy_>;

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  at::Tensor target = destination;
  return Copy::run(target, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  if (destination.sizes() != self.sizes()) {
    destination.resize_(self.sizes());
  }
  return copy_from(self, destination, /*non_blocking=*/false);
}

constexpr c10::DispatchKeySet kDenseBackends({c10::BackendComponent::CPUBit, c10::BackendComponent::CUDABit,
                                              c10::BackendComponent::PrivateUse1Bit});

bool is_plain(const at::Tensor& tensor) {
  const c10::DispatchKeySet keys = tensor.key_set();
  return keys.has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) && keys.has_any(kDenseBackends) &&
         tensor.has_storage();
}

/// PyTorch's contract: whether `self.data = from` may be assigned. Both are plain TensorImpls, so it may, and a
/// Parameter keeps its identity in Module.to("flagos").
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return is_plain(self) && is_plain(from);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("copy_", TORCH_FN(Copy::run));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

}  // namespace

}  // namespace flagos
