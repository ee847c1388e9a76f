#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

namespace flagos {

namespace {

// These make a tensor over the same storage and touch no memory: PyTorch's own kernels serve any device. Other views
// (select, slice, transpose, expand, detach, ...) have one kernel for all devices already.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  library.impl("view_as_real", TORCH_FN(at::native::view_as_real));
}

}  // namespace

}  // namespace flagos
