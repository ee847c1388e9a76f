#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "core/FlagosCall.h"
#include "core/FlagosErrors.h"

namespace flagos {

namespace {

// PyTorch sends convolutions of PrivateUse1 to these two operators; the vendor's own choice of algorithm starts one
// level higher, at aten::convolution.

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                       bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  VendorCall call(Writes::No);
  const at::Tensor lent_input = call.lend(input);
  const at::Tensor lent_weight = call.lend(weight);
  const std::optional<at::Tensor> lent_bias = call.lend(bias);
  call.enter();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return call.take(with_own_words([&] {
    return at::convolution_symint(lent_input, lent_weight, lent_bias, stride, padding, dilation, transposed,
                                  output_padding, std::move(groups));
  }));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
    c10::SymInt groups, std::array<bool, 3> output_mask) {
  VendorCall call(Writes::No);
  const at::Tensor lent_grad = call.lend(grad_output);
  const at::Tensor lent_input = call.lend(input);
  const at::Tensor lent_weight = call.lend(weight);
  // This operator is not told the bias' size; it is the number of output channels.
  const std::array<c10::SymInt, 1> channels{transposed ? weight.sym_size(1) * groups : weight.sym_size(0)};
  const at::OptionalSymIntArrayRef bias_sizes =
      output_mask[2] ? at::OptionalSymIntArrayRef(c10::SymIntArrayRef(channels)) : std::nullopt;
  call.enter();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto [grad_input, grad_weight, grad_bias] = with_own_words([&] {
    return at::convolution_backward_symint(lent_grad, lent_input, lent_weight, bias_sizes, stride, padding, dilation,
                                           transposed, output_padding, std::move(groups), output_mask);
  });
  return {call.take(std::move(grad_input)), call.take(std::move(grad_weight)), call.take(std::move(grad_bias))};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("convolution_overrideable", TORCH_FN(convolution));
  library.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
}

}  // namespace

}  // namespace flagos
