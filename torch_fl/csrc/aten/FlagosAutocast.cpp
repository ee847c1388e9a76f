#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

// Autocast of flagos. The lists of operators are PyTorch's own macros, which its registrations for CUDA are made from
// too, so that both cast alike with every torch version.

namespace flagos {

namespace {

/// PyTorch refuses this operator under autocast on CUDA as well, by a function that it does not export.
at::Tensor refuse_binary_cross_entropy(const at::Tensor& /*input*/, const at::Tensor& /*target*/,
                                       const std::optional<at::Tensor>& /*weight*/, int64_t /*reduction*/) {
  TORCH_CHECK(false,
              "flagos: asked for binary_cross_entropy (torch.nn.BCELoss) under autocast, which is unsafe there: its "
              "input may have been rounded to 0 or 1 before. Use binary_cross_entropy_with_logits "
              "(torch.nn.BCEWithLogitsLoss) without the sigmoid before it");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

#define FLAGOS_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FLAGOS_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FLAGOS_FP32_OPTIONAL_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define FLAGOS_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

}  // namespace

}  // namespace flagos

// PyTorch's macros name its types without their namespace.
namespace at::autocast {

namespace {

// The macros call the library `m`.
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(FLAGOS_LOWER_PRECISION)
  AT_FORALL_FP32(FLAGOS_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FLAGOS_FP32_OPTIONAL_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(FLAGOS_PROMOTE)
  // In PyTorch's registrations for CUDA, but in none of its lists.
  KERNEL_PRIVATEUSEONE(cudnn_convolution, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(cudnn_convolution_transpose, lower_precision_fp)
  m.impl("binary_cross_entropy", TORCH_FN(flagos::refuse_binary_cross_entropy));
}

}  // namespace

}  // namespace at::autocast
