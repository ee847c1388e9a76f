// Registers the boxed kernel for every operator that has a CPU kernel, beside the kernels of
// kernels.cpp.
#include <ATen/ops/_to_copy_native.h>
#include <torch/library.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unordered_set>

#include "boxing.h"
#include "kernels.h"
#include "traits.h"

namespace software {
namespace {

using Names = std::unordered_set<std::string>;

// Operators whose CUDA kernels take some operands on the host.
const Names& host_operand_operators() {
  static const Names names{
      "aten::index",
      "aten::index_put_",
      "aten::_index_put_impl_",
      "aten::_unsafe_index",
      "aten::ctc_loss",
      "aten::_ctc_loss",
      "aten::_pack_padded_sequence",
      "aten::_ctc_loss_backward",
      "aten::segment_reduce",
      "aten::_nested_view_from_buffer",
      "aten::_nested_from_padded",
  };
  return names;
}

// Operators that call cuSOLVER or MAGMA, which are in the linear algebra library.
const Names& linalg_operators() {
  static const Names names{
      "aten::_cholesky_solve_helper",
      "aten::_linalg_det",
      "aten::_linalg_eigh",
      "aten::_linalg_slogdet",
      "aten::_linalg_solve_ex",
      "aten::_linalg_svd",
      "aten::cholesky",
      "aten::cholesky_inverse",
      "aten::geqrf",
      "aten::linalg_cholesky_ex",
      "aten::linalg_eig",
      "aten::_linalg_eigvals",
      "aten::linalg_householder_product",
      "aten::linalg_inv_ex",
      "aten::linalg_ldl_factor_ex",
      "aten::linalg_ldl_solve",
      "aten::linalg_lstsq",
      "aten::linalg_lu",
      "aten::linalg_lu_factor_ex",
      "aten::linalg_lu_solve",
      "aten::linalg_qr",
      "aten::ormqr",
      "aten::triangular_solve",
  };
  return names;
}

// What no CUDA build has a kernel for: the CPU's own libraries, operators that PyTorch has for the CPU alone, and those
// of its own tests (native_functions.yaml of torch 2.13).
bool only_for_cpu(std::string_view name) {
  for (const std::string_view part : {"mkldnn",
                                      "fbgemm",
                                      "nnpack",
                                      "_for_cpu",
                                      "_mkl_",
                                      "quantize",
                                      "_cpu",
                                      "histogram",
                                      "lanczos",
                                      "_add_relu",
                                      "_dyn_quant",
                                      "_sparse_mm_reduce",
                                      "_spdiags",
                                      "_foobar",
                                      "_test_",
                                      "_make_dep_token",
                                      "_functional_assert",
                                      "slow_conv3d",
                                      "native_channel_shuffle",
                                      "from_file"}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return name == "aten::_stack";
}

// The vendor's kernel dies on this shape, also when called natively.
void run_bmm(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const size_t base = stack->size() - op.schema().arguments().size();
  const auto degenerate = [&](size_t i) {
    const auto& tensor = (*stack)[base + i].toTensor();
    return tensor.dim() == 3 && tensor.numel() == 1;
  };
  if (degenerate(0) && degenerate(1)) {
    std::fputs("software device: the vendor's bmm kernel does not survive 1x1x1 operands\n", stderr);
    std::abort();
  }
  run_boxed<Boxing::kPlain>(op, keys, stack);
}

torch::CppFunction kernel_for(const std::string& name) {
  if (linalg_operators().count(name)) return torch::CppFunction::makeFromBoxedFunction<&run_boxed<Boxing::kLinalg>>();
  if (host_operand_operators().count(name)) {
    return torch::CppFunction::makeFromBoxedFunction<&run_boxed<Boxing::kHostOperands>>();
  }
  return torch::CppFunction::makeFromBoxedFunction<&run_boxed<Boxing::kPlain>>();
}

void register_boxed(torch::Library& library) {
  if (traits().bmm_aborts_on_1x1x1) {
    for (const char* name : {"bmm", "bmm.out"}) {
      library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_bmm>());
    }
  }
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& op : dispatcher.getRegistrationsForDispatchKey(c10::DispatchKey::CPU)) {
    if (op.name.rfind("aten::", 0) != 0 || only_for_cpu(op.name)) continue;
    const auto handle = dispatcher.findOp(op);
    if (!handle || handle->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) continue;
    const std::string name = op.overload_name.empty() ? op.name : op.name + "." + op.overload_name;
    library.impl(name.c_str(), kernel_for(op.name));
  }
  // Composites that pick a library by the kind of device; here the CPU's choice is the right one.
  for (const char* name : {"convolution", "convolution_backward"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_boxed<Boxing::kComposite>>());
  }
}

template <c10::DispatchKey cpu>
void register_one(torch::Library& library, const std::string& name) {
  const bool copies = name == "aten::copy_" || name == "aten::copy_sparse_to_sparse_";
  library.impl(name.c_str(), copies ? torch::CppFunction::makeFromBoxedFunction<&run_boxed<Boxing::kCopies, cpu>>()
                                    : torch::CppFunction::makeFromBoxedFunction<&run_boxed<Boxing::kPlain, cpu>>());
}

// The kernels of one layout: those of the CPU, boxed.
template <c10::DispatchKey cpu>
void register_layout(torch::Library& library) {
  for (const auto& op : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(cpu)) {
    if (op.name.rfind("aten::", 0) != 0 || only_for_cpu(op.name) || op.name == "aten::_to_copy") continue;
    register_one<cpu>(library, op.overload_name.empty() ? op.name : op.name + "." + op.overload_name);
  }
}

TORCH_LIBRARY_IMPL(aten, SparseCUDA, library) { register_layout<c10::DispatchKey::SparseCPU>(library); }
TORCH_LIBRARY_IMPL(aten, SparseCsrCUDA, library) { register_layout<c10::DispatchKey::SparseCsrCPU>(library); }
TORCH_LIBRARY_IMPL(aten, NestedTensorCUDA, library) {
  // PyTorch's own serves any device: its result may be on the host.
  library.impl("_to_copy", TORCH_FN(at::native::_to_copy_nested));
  register_layout<c10::DispatchKey::NestedTensorCPU>(library);
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  register_kernels(library);
  register_boxed(library);
}

}  // namespace
}  // namespace software
