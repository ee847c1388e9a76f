#include <ATen/core/Tensor.h>
#include <ATen/native/Normalization.h>
#include <ATen/ops/_batch_norm_impl_index_native.h>
#include <ATen/ops/cudnn_batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/miopen_batch_norm.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <utility>

#include "aten/FlagosLikeness.h"
#include "core/FlagosDevice.h"
#include "core/FlagosUnboxed.h"

namespace flagos {

namespace {

using MaybeTensor = std::optional<at::Tensor>;
using Backend = at::native::BatchNormBackend;
using GroupNorm = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
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

/// PyTorch's composite makes CUDA's operands contiguous, the only format that CUDA's kernel has, but leaves those of
/// PrivateUse1 in channels last, as the CPU's.
GroupNorm native_group_norm(const at::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias, c10::SymInt n,
                            c10::SymInt channels, c10::SymInt rest, int64_t groups, double eps) {
  // Other strides than the composite's are the vendor's to refuse.
  const bool formatted = input.is_contiguous(input.suggest_memory_format());
  const at::Tensor dense = formatted ? input.contiguous() : input;
  return Unboxed<at::_ops::native_group_norm>::run(dense, weight, bias, std::move(n), std::move(channels),
                                                   std::move(rest), groups, eps);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) {
  library.impl("_batch_norm_impl_index", TORCH_FN(batch_norm_impl_index));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("native_group_norm", TORCH_FN(native_group_norm));
  library.impl("_batch_norm_impl_index", TORCH_FN(batch_norm_impl_index));
}

}  // namespace

}  // namespace flagos
