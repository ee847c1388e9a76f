#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/Normalization.h>
#include <ATen/ops/_batch_norm_impl_index_native.h>
#include <ATen/ops/cudnn_batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/group_norm_native.h>
#include <ATen/ops/layer_norm_native.h>
#include <ATen/ops/miopen_batch_norm.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <utility>

#include "aten/FlagosLikeness.h"
#include "core/FlagosDevice.h"
#include "core/FlagosFirstResult.h"

namespace flagos {

namespace {

using MaybeTensor = std::optional<at::Tensor>;
using Backend = at::native::BatchNormBackend;
using BatchNorm = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, int64_t>;

// PyTorch's numbers for these in the last result, by which the backward pass finds its kernel.
constexpr int64_t kCudnn = 1;
constexpr int64_t kMiopen = 2;

at::Tensor or_undefined(const MaybeTensor& tensor) { return tensor.value_or(at::Tensor()); }

/// Asks the core's own choice, which goes by the device, with likenesses.
Backend choose_batch_norm(const at::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
                          const MaybeTensor& running_mean, const MaybeTensor& running_var, bool training, double eps) {
  ensure_vendor_ready();
  return at::native::_select_batch_norm_backend(
      make_likeness(input), make_likeness(or_undefined(weight)), make_likeness(or_undefined(bias)),
      make_likeness(or_undefined(running_mean)), make_likeness(or_undefined(running_var)), training, eps);
}

MaybeTensor contiguous(const MaybeTensor& tensor) {
  return tensor && tensor->defined() ? MaybeTensor(tensor->contiguous()) : tensor;
}

/// PyTorch's composite takes the vendor's library only for tensors of CUDA. This runs above autograd, so that the
/// gradients are those of the library's operator.
BatchNorm batch_norm_impl_index(const at::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
                                const MaybeTensor& running_mean, const MaybeTensor& running_var, bool training,
                                double momentum, double eps, bool vendor_library) {
  // An empty batch, and operands that do not fit each other, are the composite's to handle or to refuse.
  const Backend backend = vendor_library && input.dim() >= 2 && input.sym_numel() != 0
                              ? choose_batch_norm(input, weight, bias, running_mean, running_var, training, eps)
                              : Backend::Native;
  if (backend == Backend::Native) {
    return at::native::_batch_norm_impl_index(input, weight, bias, running_mean, running_var, training, momentum, eps,
                                              vendor_library);
  }
  const at::Tensor dense = input.contiguous(input.suggest_memory_format());
  const at::Tensor scale = weight->contiguous();
  const MaybeTensor shift = contiguous(bias);
  const MaybeTensor mean = contiguous(running_mean);
  const MaybeTensor variance = contiguous(running_var);
  if (backend == Backend::Cudnn) {
    auto [output, save_mean, save_var, reserve] =
        at::cudnn_batch_norm(dense, scale, shift, mean, variance, training, momentum, eps);
    return {output, save_mean, save_var, reserve, kCudnn};
  }
  auto [output, save_mean, save_var] =
      at::miopen_batch_norm(dense, scale, shift, mean, variance, training, momentum, eps);
  return {output, save_mean, save_var, at::empty({0}, input.options().dtype(at::kByte)), kMiopen};
}

/// Whether a gradient, or a tangent of forward AD, has to follow from the tensor.
bool is_differentiated(const at::Tensor& tensor) {
  const c10::AutogradMetaInterface* meta = tensor.unsafeGetTensorImpl()->autograd_meta();
  return meta != nullptr &&
         ((meta->requires_grad() && at::GradMode::is_enabled()) || tensor._fw_grad(/*level=*/0).defined());
}
bool is_differentiated(const MaybeTensor& tensor) { return tensor && is_differentiated(*tensor); }

/// PyTorch's composite keeps one of three results. Autograd needs the others; where it records nothing, they are never
/// made flagos' own.
at::Tensor layer_norm(const at::Tensor& input, c10::SymIntArrayRef shape, const MaybeTensor& weight,
                      const MaybeTensor& bias, double eps, bool vendor_library) {
  if (is_differentiated(input) || is_differentiated(weight) || is_differentiated(bias)) {
    return at::native::layer_norm_symint(input, shape, weight, bias, eps, vendor_library);
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const FirstResultOnly first_only(input);
  return std::get<0>(at::_ops::native_layer_norm::call(input, shape, weight, bias, eps));
}

/// PyTorch's composite takes CUDA's operands to the contiguous format, the only one that CUDA's kernels have, but
/// leaves those of PrivateUse1 in channels last, as the CPU's.
at::Tensor group_norm(const at::Tensor& input, int64_t groups, const MaybeTensor& weight, const MaybeTensor& bias,
                      double eps, bool vendor_library) {
  return at::native::group_norm(input.contiguous(), groups, weight, bias, eps, vendor_library);
}

void register_norms(torch::Library& library) {
  library.impl("_batch_norm_impl_index", TORCH_FN(batch_norm_impl_index));
  library.impl("layer_norm", TORCH_FN(layer_norm));
  library.impl("group_norm", TORCH_FN(group_norm));
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) { register_norms(library); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) { register_norms(library); }

}  // namespace

}  // namespace flagos
