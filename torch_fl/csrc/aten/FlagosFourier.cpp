#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/native/Resize.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <string>
#include <utility>

#include "core/FlagosDevice.h"

namespace flagos {

namespace {

using torch::jit::Stack;

/// The transforms of torch.fft, all of which are composites of PyTorch's, with an out= form each.
constexpr const char* kTransforms[] = {"fft_fft",  "fft_ifft",  "fft_rfft",  "fft_irfft",  "fft_hfft",  "fft_ihfft",
                                       "fft_fft2", "fft_ifft2", "fft_rfft2", "fft_irfft2", "fft_hfft2", "fft_ihfft2",
                                       "fft_fftn", "fft_ifftn", "fft_rfftn", "fft_irfftn", "fft_hfftn", "fft_ihfftn"};

/// Whether the composite would transform in half precision, which it does for devices named CUDA alone.
bool is_half(const at::Tensor& input) {
  // An input elsewhere, beside an out= that is here, is the composite's to refuse.
  if (input.device().type() != kFlagos) {
    return false;
  }
  const at::ScalarType given = input.scalar_type();
  const bool counts = at::isFloatingType(given) || at::isComplexType(given);
  const at::ScalarType type = counts ? given : c10::get_default_dtype_as_scalartype();
  return type == at::kHalf || type == at::kComplexHalf;
}

at::Tensor to_single(const at::Tensor& tensor) {
  return tensor.to(tensor.is_complex() ? at::kComplexFloat : at::kFloat);
}
at::Tensor to_half(const at::Tensor& tensor) { return tensor.to(tensor.is_complex() ? at::kComplexHalf : at::kHalf); }

/// As the vendor's transforms treat what they are given to write to: other precisions are cast to.
void write_to(const c10::OperatorHandle& op, at::Tensor& out, const at::Tensor& result) {
  TORCH_CHECK(out.is_complex() == result.is_complex() && (out.is_complex() || out.is_floating_point()),
              "flagos: ", op.operator_name(), " expects an out tensor of ", result.scalar_type(),
              " or another precision, got ", out.scalar_type());
  TORCH_CHECK(out.device() == result.device(), "flagos: ", op.operator_name(), " expects an out tensor on ",
              result.device(), ", where the operand is, got one on ", out.device());
  TORCH_CHECK(!at::GradMode::is_enabled() || !(result.requires_grad() || out.requires_grad()),
              "flagos: ", op.operator_name(), " with out= cannot be differentiated, but an argument requires grad; ",
              "leave out= away, or call it under torch.no_grad()");
  at::native::resize_output_symint(out, result.sym_sizes());
  out.copy_(result);
}

/// In half precision: transforms in single precision and rounds, in operators that autograd knows. The vendor's own
/// transform of halves takes lengths that are powers of two only, and rounds in between. All else is the composite's.
void transform(const c10::OperatorHandle& op, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  at::Tensor input = torch::jit::peek(*stack, 0, count).toTensor();
  if (!is_half(input)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
    return;
  }
  const bool writes = schema.is_mutable();
  at::Tensor out = writes ? torch::jit::pop(*stack).toTensor() : at::Tensor();
  torch::jit::peek(*stack, 0, writes ? count - 1 : count) = to_single(input);
  c10::Dispatcher::singleton().findSchemaOrThrow(schema.name().c_str(), "").callBoxed(stack);
  const at::Tensor result = to_half(torch::jit::pop(*stack).toTensor());
  if (writes) {
    write_to(op, out, result);
  }
  torch::jit::push(*stack, writes ? std::move(out) : result);
}

void register_transforms(torch::Library& library) {
  for (const char* name : kTransforms) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&transform>());
    library.impl((std::string(name) + ".out").c_str(), torch::CppFunction::makeFromBoxedFunction<&transform>());
  }
}

// Above autograd, as the composites are.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) { register_transforms(library); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) { register_transforms(library); }

}  // namespace

}  // namespace flagos
