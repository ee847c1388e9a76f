#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/_cudnn_ctc_loss.h>
#include <ATen/ops/_nested_view_from_buffer_ops.h>
#include <ATen/ops/_use_cudnn_ctc_loss.h>
#include <ATen/ops/addr_ops.h>
#include <ATen/ops/ctc_loss_native.h>
#include <ATen/ops/cudnn_grid_sampler.h>
#include <ATen/ops/grid_sampler_native.h>
#include <ATen/ops/tensor.h>
#include <torch/library.h>

#include <tuple>
#include <utility>

#include "aten/FlagosLikeness.h"
#include "core/FlagosBoxed.h"
#include "core/FlagosCall.h"
#include "core/FlagosDevice.h"
#include "core/FlagosErrors.h"

namespace flagos {

namespace {

// Composites of PyTorch that go by the device's name. Each asks the vendor the composite's own question, and leaves
// everything else to the composite.

bool use_cudnn_grid_sampler(const at::Tensor& input, const at::Tensor& grid) {
  ensure_vendor_ready();
  return at::native::cond_cudnn_grid_sampler(make_likeness(input), make_likeness(grid));
}

at::Tensor grid_sampler(const at::Tensor& input, const at::Tensor& grid, int64_t interpolation, int64_t padding,
                        bool align_corners) {
  const bool offered = interpolation == static_cast<int64_t>(at::native::GridSamplerInterpolation::Bilinear) &&
                       padding == static_cast<int64_t>(at::native::GridSamplerPadding::Zeros) && align_corners;
  if (offered && use_cudnn_grid_sampler(input, grid)) {
    at::native::check_grid_sampler_common(input, grid);
    return at::cudnn_grid_sampler(input, grid);
  }
  return at::native::grid_sampler(input, grid, interpolation, padding, align_corners);
}

at::Tensor as_losses(at::IntArrayRef lengths, const at::Tensor& losses) {
  return at::tensor(lengths, losses.options());
}
at::Tensor as_losses(const at::Tensor& lengths, const at::Tensor& losses) { return lengths.to(losses.options()); }

/// `Lengths`: a list of numbers, or a tensor of them.
template <typename Lengths>
at::Tensor ctc_loss(const at::Tensor& log_probs, const at::Tensor& targets, Lengths input_lengths,
                    Lengths target_lengths, int64_t blank, int64_t reduction, bool zero_infinity) {
  constexpr int64_t kBatched = 3;
  if (log_probs.dim() != kBatched ||
      !at::_use_cudnn_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank)) {
    return at::native::ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity);
  }
  const at::Tensor losses = std::get<0>(at::_cudnn_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank,
                                                            at::globalContext().deterministicCuDNN(), zero_infinity));
  if (reduction == at::Reduction::Mean) {
    return (losses / as_losses(target_lengths, losses).clamp_min(1)).mean();
  }
  return reduction == at::Reduction::Sum ? losses.sum() : losses;
}

/// In place, `self` and `out` are one object, and the vendor's kernel refuses what would resize it by comparing their
/// addresses; a boxed call would hand it two.
at::Tensor& addr_out(const at::Tensor& self, const at::Tensor& left, const at::Tensor& right, const at::Scalar& beta,
                     const at::Scalar& alpha, at::Tensor& out) {
  VendorCall call(Writes::Yes);
  at::Tensor lent_out = call.lend(out);
  const at::Tensor lent_self = call.lend(self);
  const at::Tensor lent_left = call.lend(left);
  const at::Tensor lent_right = call.lend(right);
  call.enter();
  with_own_words([&] {
    at::_ops::addr_out::redispatch(kVendorKeys, lent_self.is_same(lent_out) ? lent_out : lent_self, lent_left,
                                   lent_right, beta, alpha, lent_out);
  });
  call.finish();
  return out;
}

/// A nested tensor's sizes, strides and offsets are read on the host, without asking where they are. torch.load puts
/// all tensors of a file on the device that it is told, these as well.
at::Tensor nested_view_from_buffer(const at::Tensor& buffer, const at::Tensor& sizes, const at::Tensor& strides,
                                   const at::Tensor& offsets) {
  VendorCall call(Writes::No);
  const at::Tensor lent_buffer = call.lend(buffer);
  call.enter();
  at::Tensor view;
  with_own_words([&] {
    view = at::_ops::_nested_view_from_buffer::redispatch(kVendorKeys, lent_buffer, sizes.cpu(), strides.cpu(),
                                                          offsets.cpu());
  });
  call.finish();
  return call.take(std::move(view));
}

void register_composites(torch::Library& library) {
  library.impl("grid_sampler", TORCH_FN(grid_sampler));
  library.impl("ctc_loss.IntList", TORCH_FN(ctc_loss<at::IntArrayRef>));
  library.impl("ctc_loss.Tensor", TORCH_FN(ctc_loss<const at::Tensor&>));
}

// Above autograd, as the composites are: gradients are those of the operators that they call.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) { register_composites(library); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  register_composites(library);
  library.impl("addr.out", TORCH_FN(addr_out));
  library.impl("_nested_view_from_buffer", TORCH_FN(nested_view_from_buffer));
  // Refuses devices by name, and has no kernel of the vendor's to find.
  library.impl("mode.values", torch::CppFunction::makeFromBoxedFunction<&run_on_vendor>());
  library.impl("cudnn_is_acceptable", torch::CppFunction::makeFromBoxedFunction<&run_on_vendor>());
}

}  // namespace

}  // namespace flagos
