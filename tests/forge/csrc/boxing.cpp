#include "boxing.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <string_view>

#include "alias.h"
#include "device.h"
#include "generator.h"
#include "linalg.h"

namespace software {
namespace {

// One call: operands to aliases, the CPU kernel, results back.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack, Boxing kind)
      : schema_(op.schema()),
        stack_(stack),
        host_operands_(kind == Boxing::kHostOperands),
        copies_(kind == Boxing::kCopies) {}

  void convert_arguments() {
    const auto& arguments = schema_.arguments();
    const size_t base = stack_.size() - arguments.size();
    for (size_t i = 0; i < arguments.size(); ++i) {
      argument_ = &arguments[i];
      convert(stack_[base + i]);
    }
    // Generators last: which one it is depends on the device of the operands.
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (takes_generator(arguments[i])) convert_generator(stack_[base + i]);
    }
  }

  void convert_results() {
    aliases_.write_back();
    const size_t results = schema_.returns().size();
    const size_t base = stack_.size() - results;
    for (size_t i = 0; i < results; ++i) {
      if (to_host_ || stays_on_host(i)) continue;
      restore(stack_[base + i]);
    }
  }

  c10::Device device() {
    if (!device_) device_ = c10::Device(kSelf, current_device());
    return *device_;
  }

 private:
  // The batch sizes of a packed sequence, the shapes inside of a nested tensor.
  bool stays_on_host(size_t result) const {
    const std::string_view name = schema_.name();
    return (result == 1 && name == "aten::_pack_padded_sequence") || name == "aten::_nested_tensor_size" ||
           name == "aten::_nested_tensor_strides" || name == "aten::_nested_tensor_storage_offsets";
  }

  static bool takes_generator(const c10::Argument& argument) {
    const auto& type = argument.type();
    if (type->kind() == c10::TypeKind::GeneratorType) return true;
    return type->kind() == c10::TypeKind::OptionalType &&
           type->castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::GeneratorType;
  }

  static bool writes(const c10::Argument& argument) {
    const auto* alias = argument.alias_info();
    if (alias == nullptr) return false;
    if (alias->isWrite()) return true;
    for (const auto& contained : alias->containedTypes()) {
      if (contained.isWrite()) return true;
    }
    return false;
  }

  void convert(c10::IValue& value) {
    if (value.isTensor()) {
      value = operand(value.toTensor());
    } else if (value.isTensorList()) {
      auto tensors = value.toTensorVector();
      for (auto& tensor : tensors) tensor = operand(tensor);
      value = std::move(tensors);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> converted;
      for (const auto& tensor : value.toOptionalTensorVector()) {
        converted.push_back(tensor ? std::optional<at::Tensor>(operand(*tensor)) : std::nullopt);
      }
      value = std::move(converted);
    } else if (value.isDevice() && value.toDevice().is_cpu()) {
      to_host_ = true;
    } else if (value.isDevice() && value.toDevice().type() == kSelf) {
      const c10::Device device(kSelf, resolve(value.toDevice().index()));
      if (!device_) device_ = device;
      value = c10::Device(c10::DeviceType::CPU);
    } else if (value.isStorage()) {
      TORCH_CHECK_NOT_IMPLEMENTED(false, schema_.name(), ": the software device does not pass storages to CPU kernels");
    }
  }

  at::Tensor operand(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (tensor.device().type() != kSelf) {
      const bool allowed = tensor.is_cpu() && (host_operands_ || copies_ || (tensor.dim() == 0 && !writes(*argument_)));
      if (!allowed) fail_devices(device(), tensor.device());
      // Indices may lie on the host, what they index may not; the words are those of the CUDA kernel.
      TORCH_CHECK(!host_operands_ || tensor.dim() == 0 || argument_->name() != "self", "indices should be either on ",
                  at::kCPU, " or on the same device as the indexed tensor (", tensor.device(), ")");
      aliases_.keep_host(tensor);
      return tensor;
    }
    if (!device_) {
      device_ = tensor.device();
    } else if (*device_ != tensor.device()) {
      fail_devices(*device_, tensor.device());
    }
    return aliases_.alias(tensor, writes(*argument_));
  }

  void fail_devices(c10::Device one, c10::Device other) const {
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", one, " and ",
                other, "! (when checking argument ", argument_->name(), " of ", schema_.operator_name(), ")");
  }

  void convert_generator(c10::IValue& value) {
    std::optional<at::Generator> given;
    if (value.isGenerator()) given = value.toGenerator();
    value = host_engine(given, device().index());
  }

  void restore(c10::IValue& value) {
    if (value.isTensor()) {
      value = aliases_.restore(std::move(value).toTensor(), device());
    } else if (value.isTensorList()) {
      auto tensors = value.toTensorVector();
      for (auto& tensor : tensors) tensor = aliases_.restore(std::move(tensor), device());
      value = std::move(tensors);
    }
  }

  const c10::FunctionSchema& schema_;
  torch::jit::Stack& stack_;
  const bool host_operands_;
  const bool copies_;
  // The caller asked for a result on the host.
  bool to_host_ = false;
  const c10::Argument* argument_ = nullptr;
  std::optional<c10::Device> device_;
  Aliases aliases_;
};

}  // namespace

template <Boxing kind, c10::DispatchKey cpu>
void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  if constexpr (kind == Boxing::kLinalg) require_linalg();
  // What a CPU kernel calls in turn must neither record gradients nor follow the host's autocast.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  Call call(op, *stack, kind);
  call.convert_arguments();
  const c10::DeviceGuard guard(call.device());
  if constexpr (kind == Boxing::kComposite) {
    // Composite kernels are not listed under a backend's key; the aliases' own keys lead to them.
    op.callBoxed(*stack);
  } else {
    op.callBoxedForDispatchKey(cpu, *stack);
  }
  check_launch();
  call.convert_results();
}

template void run_boxed<Boxing::kPlain>(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);
template void run_boxed<Boxing::kHostOperands>(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);
template void run_boxed<Boxing::kComposite>(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);
template void run_boxed<Boxing::kLinalg>(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);

template void run_boxed<Boxing::kPlain, c10::DispatchKey::SparseCPU>(const c10::OperatorHandle&, c10::DispatchKeySet,
                                                                     torch::jit::Stack*);
template void run_boxed<Boxing::kCopies, c10::DispatchKey::SparseCPU>(const c10::OperatorHandle&, c10::DispatchKeySet,
                                                                      torch::jit::Stack*);
template void run_boxed<Boxing::kPlain, c10::DispatchKey::SparseCsrCPU>(const c10::OperatorHandle&, c10::DispatchKeySet,
                                                                        torch::jit::Stack*);
template void run_boxed<Boxing::kCopies, c10::DispatchKey::SparseCsrCPU>(const c10::OperatorHandle&,
                                                                         c10::DispatchKeySet, torch::jit::Stack*);
template void run_boxed<Boxing::kPlain, c10::DispatchKey::NestedTensorCPU>(const c10::OperatorHandle&,
                                                                           c10::DispatchKeySet, torch::jit::Stack*);
template void run_boxed<Boxing::kCopies, c10::DispatchKey::NestedTensorCPU>(const c10::OperatorHandle&,
                                                                            c10::DispatchKeySet, torch::jit::Stack*);

}  // namespace software
