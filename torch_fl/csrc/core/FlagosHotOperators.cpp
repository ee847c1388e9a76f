#include "core/FlagosHotOperators.h"

#include <ATen/Operators.h>

#include <unordered_map>

#include "core/FlagosUnboxed.h"

namespace flagos {

namespace {

using Maker = c10::KernelFunction (*)();

/// The operators of training and inference steps. Any other operator has the boxed kernel, which does the same at a
/// higher cost per call. Entries are the names of at::_ops.
// clang-format off: it finds no stable layout for a list this long.
#define FLAGOS_HOT_OPERATORS(HOT)                                                                                      \
  /* pointwise, two operands */                                                                                        \
  HOT(add_Tensor) HOT(add__Tensor) HOT(add_out) HOT(sub_Tensor) HOT(sub__Tensor) HOT(sub_out) HOT(mul_Tensor)          \
  HOT(mul__Tensor) HOT(mul_out) HOT(div_Tensor) HOT(div__Tensor) HOT(div_out) HOT(maximum) HOT(minimum)                \
  HOT(pow_Tensor_Scalar) HOT(pow_Tensor_Tensor) HOT(pow__Scalar) HOT(eq_Tensor) HOT(eq_Scalar) HOT(ne_Tensor)          \
  HOT(ne_Scalar) HOT(lt_Tensor) HOT(lt_Scalar) HOT(le_Tensor) HOT(le_Scalar) HOT(gt_Tensor) HOT(gt_Scalar)             \
  HOT(ge_Tensor) HOT(ge_Scalar) HOT(bitwise_and_Tensor) HOT(bitwise_or_Tensor) HOT(logical_and) HOT(logical_or)        \
  HOT(logical_not)                                                                                                     \
  /* pointwise, one operand */                                                                                         \
  HOT(neg) HOT(neg_) HOT(exp) HOT(exp_) HOT(log) HOT(log_) HOT(sqrt) HOT(sqrt_) HOT(rsqrt) HOT(rsqrt_)                 \
  HOT(reciprocal) HOT(reciprocal_) HOT(abs) HOT(sin) HOT(cos) HOT(tanh) HOT(tanh_) HOT(sigmoid) HOT(sigmoid_)          \
  HOT(relu) HOT(relu_) HOT(gelu) HOT(silu) HOT(silu_) HOT(erf) HOT(floor) HOT(isnan) HOT(bitwise_not) HOT(clamp)       \
  HOT(clamp_) HOT(clamp_min) HOT(leaky_relu) HOT(elu) HOT(softplus)                                                    \
  /* pointwise, three operands */                                                                                      \
  HOT(where_self) HOT(masked_fill_Scalar) HOT(masked_fill__Scalar) HOT(addcmul) HOT(addcmul_) HOT(addcdiv)             \
  HOT(addcdiv_) HOT(lerp_Scalar) HOT(lerp__Scalar) HOT(lerp__Tensor)                                                   \
  /* their gradients */                                                                                                \
  HOT(threshold_backward) HOT(gelu_backward) HOT(silu_backward) HOT(sigmoid_backward) HOT(tanh_backward)               \
  HOT(leaky_relu_backward) HOT(elu_backward) HOT(softplus_backward)                                                    \
  /* matrix products */                                                                                                \
  HOT(mm) HOT(mm_out) HOT(bmm) HOT(bmm_out) HOT(addmm) HOT(addmm_out) HOT(addmm_) HOT(baddbmm) HOT(baddbmm_out)        \
  HOT(addmv) HOT(addmv_out) HOT(dot) HOT(mv) HOT(_addmm_activation) HOT(linear_backward)                               \
  /* reductions */                                                                                                     \
  HOT(sum) HOT(sum_dim_IntList) HOT(sum_IntList_out) HOT(mean) HOT(mean_dim) HOT(mean_out) HOT(amax) HOT(amin)         \
  HOT(max) HOT(max_dim) HOT(min) HOT(argmax) HOT(any) HOT(all) HOT(cumsum) HOT(linalg_vector_norm) HOT(topk)           \
  HOT(var_mean_correction) HOT(var_correction) HOT(sort) HOT(_local_scalar_dense)                                      \
  /* softmax, norms, losses */                                                                                         \
  HOT(_softmax) HOT(_softmax_out) HOT(_softmax_backward_data) HOT(_log_softmax) HOT(_log_softmax_backward_data)        \
  HOT(native_layer_norm) HOT(native_layer_norm_backward) HOT(native_group_norm_backward)                               \
  HOT(native_dropout) HOT(native_dropout_backward) HOT(nll_loss_forward) HOT(nll_loss_backward) HOT(mse_loss)          \
  HOT(mse_loss_backward) HOT(binary_cross_entropy_with_logits) HOT(_scaled_dot_product_flash_attention)                \
  HOT(_scaled_dot_product_efficient_attention) HOT(_scaled_dot_product_efficient_attention_backward)                   \
  HOT(_scaled_dot_product_flash_attention_backward)                                                                    \
  /* indexing and copies */                                                                                            \
  HOT(embedding_dense_backward) HOT(index_select) HOT(index_Tensor) HOT(_index_put_impl_) HOT(gather)                  \
  HOT(scatter_src) HOT(scatter_value) HOT(scatter__src) HOT(scatter__value) HOT(scatter_add) HOT(scatter_add_)         \
  HOT(index_add_) HOT(cat) HOT(cat_out) HOT(tril) HOT(triu) HOT(fill__Scalar) HOT(fill__Tensor) HOT(zero_)             \
  HOT(arange_start_out) HOT(uniform_) HOT(normal_) HOT(bernoulli__float) HOT(random_) HOT(constant_pad_nd)             \
  HOT(nonzero) HOT(flip)                                                                                               \
  /* images */                                                                                                         \
  HOT(max_pool2d_with_indices) HOT(max_pool2d_with_indices_backward) HOT(avg_pool2d) HOT(avg_pool2d_backward)          \
  HOT(_adaptive_avg_pool2d) HOT(_adaptive_avg_pool2d_backward) HOT(upsample_nearest2d) HOT(upsample_bilinear2d)        \
  HOT(native_batch_norm) HOT(native_batch_norm_backward) HOT(cudnn_batch_norm) HOT(cudnn_batch_norm_backward)          \
  /* optimizers */                                                                                                     \
  HOT(_foreach_add_Scalar) HOT(_foreach_add_List) HOT(_foreach_add__Scalar) HOT(_foreach_add__List)                    \
  HOT(_foreach_sub_List) HOT(_foreach_sub__Scalar) HOT(_foreach_sub__List) HOT(_foreach_mul_Scalar)                    \
  HOT(_foreach_mul_List) HOT(_foreach_mul__Scalar) HOT(_foreach_mul__List) HOT(_foreach_mul__Tensor)                   \
  HOT(_foreach_mul_Tensor) HOT(_foreach_div_Scalar) HOT(_foreach_div_List) HOT(_foreach_div__Scalar)                   \
  HOT(_foreach_div__List) HOT(_foreach_div__ScalarList) HOT(_foreach_neg) HOT(_foreach_neg_) HOT(_foreach_sqrt)        \
  HOT(_foreach_sqrt_) HOT(_foreach_reciprocal_) HOT(_foreach_lerp__Scalar) HOT(_foreach_addcmul__Scalar)               \
  HOT(_foreach_addcdiv__Scalar) HOT(_foreach_addcdiv__ScalarList) HOT(_foreach_maximum__List)                          \
  HOT(_foreach_norm_Scalar) HOT(_foreach_zero_) HOT(_foreach_copy_) HOT(_foreach_pow_ScalarAndTensor)                  \
  HOT(_amp_update_scale_) HOT(_amp_foreach_non_finite_check_and_unscale_) HOT(_fused_adam_) HOT(_fused_adamw_)         \
  HOT(_fused_sgd_)
// clang-format on

const std::unordered_map<c10::OperatorName, Maker>& makers() {
#define FLAGOS_MAKER(op) {{at::_ops::op::name, at::_ops::op::overload_name}, &make_unboxed<at::_ops::op>},
  static const auto* table = new std::unordered_map<c10::OperatorName, Maker>{FLAGOS_HOT_OPERATORS(FLAGOS_MAKER)};
#undef FLAGOS_MAKER
  return *table;
}

}  // namespace

c10::KernelFunction hot_kernel(const c10::OperatorName& name) {
  const auto found = makers().find(name);
  return found == makers().end() ? c10::KernelFunction() : found->second();
}

}  // namespace flagos
