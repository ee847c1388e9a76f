#include "core/FlagosBoxed.h"

#include <ATen/core/ivalue.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/FlagosAlias.h"
#include "core/FlagosCall.h"
#include "core/FlagosDevice.h"
#include "core/FlagosErrors.h"
#include "route/FlagosRoutes.h"

namespace flagos {

namespace {

template <typename Element>
std::vector<Element> lend_all(VendorCall& call, std::vector<Element> elements) {
  for (Element& element : elements) {
    element = call.lend(std::move(element));
  }
  return elements;
}

}  // namespace

void lend_argument(VendorCall& call, c10::IValue& value) {
  if (value.isTensor()) {
    if (is_flagos(value.toTensor())) {
      value = call.lend(std::move(value).toTensor());
    } else {
      call.note_foreign(value.toTensor());
    }
  } else if (value.isTensorList()) {
    value = lend_all(call, value.toTensorVector());
  } else if (value.isOptionalTensorList()) {
    value = lend_all(call, value.toOptionalTensorVector());
  } else if (value.isDevice()) {
    value = call.lend(value.toDevice());
  } else if (value.isGenerator()) {
    value = VendorCall::lend(value.toGenerator());
  } else if (value.isStream()) {
    value = call.lend(value.toStream());
  } else if (value.isStorage()) {
    value = call.lend(value.toStorage());
  }
}

void take_result(VendorCall& call, c10::IValue& value) {
  if (value.isTensor()) {
    if (is_vendor(value.toTensor())) {
      value = call.take(std::move(value).toTensor());
    }
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> results = value.toTensorVector();
    // The list holds a reference to each result; a result that nobody else holds is adopted without a new TensorImpl.
    value = c10::IValue();
    for (at::Tensor& result : results) {
      result = call.take(std::move(result));
    }
    value = std::move(results);
  }
}

namespace {

/// FLAGOS_FALLBACK: `cpu` (also when unset or empty) lets operators without a kernel run on the CPU, `error` refuses.
bool may_run_on_cpu() {
  static const bool allowed = [] {
    const char* given = std::getenv("FLAGOS_FALLBACK");
    const std::string_view choice = given == nullptr || *given == '\0' ? "cpu" : given;
    TORCH_CHECK_VALUE(choice == "cpu" || choice == "error", "flagos: FLAGOS_FALLBACK is '", choice,
                      "', expected cpu (run operators without a kernel on the CPU) or error (refuse them)");
    return choice == "cpu";
  }();
  return allowed;
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(may_run_on_cpu(), "flagos: ", op.operator_name(),
                              " has no kernel for this device, and FLAGOS_FALLBACK=error forbids the CPU; set "
                              "FLAGOS_FALLBACK=cpu, or move the operands to the CPU");
  static std::mutex mutex;
  static auto* told = new std::unordered_set<c10::OperatorName>();
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (told->insert(op.operator_name()).second) {
      std::cerr << "flagos: " << op.operator_name()
                << " has no kernel for this device and runs on the CPU (said once per operator)" << std::endl;
    }
  }
  // A view made on the CPU would not share memory with its base: refuse instead of giving wrong answers later.
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

bool is_copy(const c10::OperatorName& name) {
  constexpr std::array<std::string_view, 4> kCopies = {"aten::copy_", "aten::copy_sparse_to_sparse_",
                                                       "aten::_foreach_copy_", "aten::_foreach_copy"};
  return std::find(kCopies.begin(), kCopies.end(), name.name) != kCopies.end();
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

}  // namespace

void enter_vendor(VendorCall& call, const c10::OperatorHandle& op) {
  if (C10_UNLIKELY(call.is_mixed()) && is_copy(op.operator_name())) {
    call.allow_mixture();
  }
  call.enter();
}

void run_on_vendor(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  VendorCall call(schema.is_mutable() ? Writes::Yes : Writes::No);
  for (size_t i = stack->size() - schema.arguments().size(); i < stack->size(); ++i) {
    lend_argument(call, (*stack)[i]);
  }
  enter_vendor(call, op);
  with_own_words([&] { op.redispatchBoxed(kVendorKeys, stack); });
  call.finish();
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    take_result(call, (*stack)[i]);
  }
}

void fall_back(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (op.hasComputedKernelForDispatchKey(c10::DispatchKey::CUDA)) {
    log_fallback(op.operator_name(), "cuda");
    run_on_vendor(op, keys, stack);
  } else {
    log_fallback(op.operator_name(), "cpu");
    run_on_cpu(op, stack);
  }
}

}  // namespace flagos
