#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "aten/FlagosLikeness.h"
#include "core/FlagosDevice.h"
#include "core/FlagosLayouts.h"

namespace flagos {

namespace {

// scaled_dot_product_attention asks a table, by the operands' device, which of its implementations to take. The
// vendor's entry decides, on aliases. Of what it can answer, PyTorch's composite calls the efficient, the cuDNN and the
// plain implementation by operators that flagos has; but for flash attention it goes by the device's name, and leaves
// every device but CUDA to the CPU's kernel. Its way for other devices is the "overrideable" implementation: here, the
// vendor's flash attention, on operands padded as the composite pads CUDA's.

constexpr c10::DispatchKeySet kTransformed({c10::DispatchKey::FuncTorchBatched,
                                            c10::DispatchKey::FuncTorchGradWrapper});

/// Whether vmap may be at work on the tensor: what is below a level of torch.func.grad cannot be seen.
bool may_be_mapped(const at::Tensor& tensor) { return tensor.key_set().has_any(kTransformed); }

constexpr auto kMath = static_cast<int64_t>(sdp::SDPBackend::math);
constexpr auto kFlash = static_cast<int64_t>(sdp::SDPBackend::flash_attention);
constexpr auto kOverrideable = static_cast<int64_t>(sdp::SDPBackend::overrideable);

int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout, bool causal,
                         std::optional<double> scale, bool grouped) {
  // The vendor looks into nested tensors, and "overrideable" has no kernel for them.
  if (has_layout(query) || has_layout(key) || has_layout(value)) {
    return kMath;
  }
  ensure_vendor_ready();
  const int64_t choice = at::_ops::_fused_sdp_choice::redispatch(kVendorKeys, make_likeness(query), make_likeness(key),
                                                                 make_likeness(value), make_likeness(mask), dropout,
                                                                 causal, scale, grouped);
  if (choice != kFlash) {
    return choice;
  }
  // vmap knows how to map flash attention, but not "overrideable".
  return may_be_mapped(query) || may_be_mapped(key) || may_be_mapped(value) ? kMath : kOverrideable;
}

// Flash attention takes heads whose size is a multiple of this; zeros beyond the end change neither products nor sums.
constexpr int64_t kHeadMultiple = 8;

at::Tensor padded(const at::Tensor& tensor) {
  const int64_t missing = (kHeadMultiple - tensor.size(-1) % kHeadMultiple) % kHeadMultiple;
  return missing == 0 ? tensor : at::constant_pad_nd(tensor, {0, missing}, 0.0);
}

at::Tensor cut(at::Tensor tensor, int64_t size) {
  return tensor.size(-1) == size ? std::move(tensor) : tensor.narrow(-1, 0, size);
}

/// The scale follows from the size before padding.
double scale_of(const at::Tensor& query, std::optional<double> scale) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
}

using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                           at::Tensor, at::Tensor>;

Forward attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>& mask, double dropout, bool causal, bool return_mask,
               std::optional<double> scale) {
  TORCH_CHECK(
      !mask.has_value() || !mask->defined(),
      "flagos: _scaled_dot_product_fused_attention_overrideable is the vendor's flash attention, which takes no "
      "attn_bias; call scaled_dot_product_attention, which chooses another implementation for it");
  Forward result = at::_scaled_dot_product_flash_attention(padded(query), padded(key), padded(value), dropout, causal,
                                                           return_mask, scale_of(query, scale));
  std::get<0>(result) = cut(std::move(std::get<0>(result)), value.size(-1));
  return result;
}

using Backward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Backward attend_backward(const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key,
                         const at::Tensor& value, const at::Tensor& /*mask*/, std::array<bool, 4> /*wanted*/,
                         const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& cum_seq_q,
                         const at::Tensor& cum_seq_k, c10::SymInt max_q, c10::SymInt max_k, double dropout, bool causal,
                         const at::Tensor& seed, const at::Tensor& offset, std::optional<double> scale) {
  auto [grad_query, grad_key, grad_value] = at::_scaled_dot_product_flash_attention_backward_symint(
      padded(grad), padded(query), padded(key), padded(value), padded(out), logsumexp, cum_seq_q, cum_seq_k,
      std::move(max_q), std::move(max_k), dropout, causal, seed, offset, scale_of(query, scale));
  return {cut(std::move(grad_query), query.size(-1)), cut(std::move(grad_key), key.size(-1)),
          cut(std::move(grad_value), value.size(-1)), at::Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(attend));
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(attend_backward));
}

}  // namespace

}  // namespace flagos

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &flagos::choose_attention)

}  // namespace at::native
