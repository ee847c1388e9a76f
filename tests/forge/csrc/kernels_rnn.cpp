// Fused cells of recurrent networks: operators that only devices have, so there is no CPU kernel to
// box.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <vector>

#include "kernels.h"

namespace software {
namespace {

using MaybeTensor = std::optional<at::Tensor>;
using Tensors = std::vector<at::Tensor>;

at::Tensor with_bias(const at::Tensor& gates, const MaybeTensor& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

// The gates in PyTorch's order: input, forget, cell, output. The workspace holds them activated.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                         const at::Tensor& cx, const MaybeTensor& input_bias,
                                                         const MaybeTensor& hidden_bias) {
  const auto gates = (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const auto in = at::sigmoid(gates[0]);
  const auto forget = at::sigmoid(gates[1]);
  const auto cell = at::tanh(gates[2]);
  const auto out = at::sigmoid(gates[3]);
  auto cy = forget * cx + in * cell;
  auto hy = out * at::tanh(cy);
  return {hy, cy, at::cat(Tensors{in, forget, cell, out}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const MaybeTensor& grad_hy,
                                                                  const MaybeTensor& grad_cy, const at::Tensor& cx,
                                                                  const at::Tensor& cy, const at::Tensor& workspace,
                                                                  bool has_bias) {
  const bool from_hidden = grad_hy.has_value() && grad_hy->defined();
  const bool from_cell = grad_cy.has_value() && grad_cy->defined();
  if (!from_hidden && !from_cell) return {};
  const auto gates = workspace.chunk(4, 1);
  const auto& in = gates[0];
  const auto& forget = gates[1];
  const auto& cell = gates[2];
  const auto& out = gates[3];
  const auto squashed = at::tanh(cy);
  const auto hidden = from_hidden ? *grad_hy : at::zeros_like(cx);
  auto grad_cell_state = hidden * out * (1 - squashed * squashed);
  if (from_cell) grad_cell_state = grad_cell_state + *grad_cy;
  auto grad_gates = at::cat(
      Tensors{
          grad_cell_state * cell * in * (1 - in),
          grad_cell_state * cx * forget * (1 - forget),
          grad_cell_state * in * (1 - cell * cell),
          hidden * squashed * out * (1 - out),
      },
      1);
  auto grad_bias = has_bias ? grad_gates.sum(0) : at::Tensor();
  return {grad_gates, grad_cell_state * forget, grad_bias};
}

// The gates in PyTorch's order: reset, update, new. The workspace holds what the backward pass
// needs.
std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                            const at::Tensor& hx, const MaybeTensor& input_bias,
                                            const MaybeTensor& hidden_bias) {
  const auto from_input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const auto reset = at::sigmoid(from_input[0] + from_hidden[0]);
  const auto update = at::sigmoid(from_input[1] + from_hidden[1]);
  const auto fresh = at::tanh(from_input[2] + reset * from_hidden[2]);
  auto hy = fresh + update * (hx - fresh);
  return {hy, at::cat(Tensors{reset, update, fresh, hx, from_hidden[2]}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(const at::Tensor& grad_hy,
                                                                                         const at::Tensor& workspace,
                                                                                         bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const auto& reset = saved[0];
  const auto& update = saved[1];
  const auto& fresh = saved[2];
  const auto& hx = saved[3];
  const auto& hidden_new = saved[4];
  const auto grad_new = grad_hy * (1 - update) * (1 - fresh * fresh);
  const auto grad_update = grad_hy * (hx - fresh) * update * (1 - update);
  const auto grad_reset = grad_new * hidden_new * reset * (1 - reset);
  auto grad_input = at::cat(Tensors{grad_reset, grad_update, grad_new}, 1);
  auto grad_hidden = at::cat(Tensors{grad_reset, grad_update, grad_new * reset}, 1);
  auto input_bias = has_bias ? grad_input.sum(0) : at::Tensor();
  auto hidden_bias = has_bias ? grad_hidden.sum(0) : at::Tensor();
  return {grad_input, grad_hidden, grad_hy * update, input_bias, hidden_bias};
}

}  // namespace

void register_rnn_kernels(torch::Library& library) {
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  library.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  library.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace software
