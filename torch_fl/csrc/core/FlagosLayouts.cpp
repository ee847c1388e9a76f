#include "core/FlagosLayouts.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/util/Exception.h>

#include <optional>

#include "core/FlagosAlias.h"
#include "core/FlagosBoxed.h"
#include "core/FlagosDevice.h"
#include "core/FlagosErrors.h"

namespace flagos {

namespace {

/// Reaches protected members of TensorImpl through pointers to members, which a derived class may form.
struct Fields : c10::TensorImpl {
  static constexpr auto device = &Fields::device_opt_;
  static constexpr auto storage = &Fields::storage_;
};

bool is_sparse(const at::Tensor& tensor) { return tensor.key_set().has(c10::DispatchKey::Sparse); }

bool is_compressed(const at::Tensor& tensor) { return tensor.key_set().has(c10::DispatchKey::SparseCsr); }

at::SparseTensorImpl& sparse_impl(const at::Tensor& tensor) {
  return *static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::SparseCsrTensorImpl& compressed_impl(const at::Tensor& tensor) {
  return *static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}

/// Moves a tensor that nobody else holds to another device type: itself, and its parts by the two functions given.
template <typename ConvertTensor, typename ConvertStorage>
void move_to(const at::Tensor& tensor, c10::Device device, ConvertTensor&& convert, ConvertStorage&& convert_storage) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  impl._change_backend_component_keys(device);
  impl.*Fields::device = device;
  if (is_sparse(tensor)) {
    at::SparseTensorImpl& sparse = sparse_impl(tensor);
    sparse.indices_ = convert(std::move(sparse.indices_));
    sparse.values_ = convert(std::move(sparse.values_));
  } else if (is_compressed(tensor)) {
    at::SparseCsrTensorImpl& compressed = compressed_impl(tensor);
    compressed.crow_indices_ = convert(std::move(compressed.crow_indices_));
    compressed.col_indices_ = convert(std::move(compressed.col_indices_));
    compressed.values_ = convert(std::move(compressed.values_));
  } else {
    c10::Storage& storage = impl.*Fields::storage;
    storage = convert_storage(storage);
  }
}

at::Tensor shallow_copy(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return at::Tensor(impl.shallow_copy_and_detach(impl.version_counter(), /*allow_tensor_metadata_change=*/true));
}

void follow_sparse(VendorCall& call, const at::Tensor& original, const at::Tensor& alias) {
  at::SparseTensorImpl& to = sparse_impl(original);
  at::SparseTensorImpl& from = sparse_impl(alias);
  if (!to.sizes().equals(from.sizes()) || to.sparse_dim() != from.sparse_dim() || to.dense_dim() != from.dense_dim()) {
    to.raw_resize_(from.sparse_dim(), from.dense_dim(), from.sizes());
  }
  to.indices_ = call.take(from.indices_);
  to.values_ = call.take(from.values_);
  to.coalesced_ = from.coalesced_;
}

void follow_compressed(VendorCall& call, const at::Tensor& original, const at::Tensor& alias) {
  at::SparseCsrTensorImpl& from = compressed_impl(alias);
  compressed_impl(original).set_member_tensors(call.take(from.crow_indices_), call.take(from.col_indices_),
                                               call.take(from.values_), alias.sizes());
}

template <typename Convert>
void convert_tensors(c10::IValue& value, Convert&& convert) {
  if (value.isTensor()) {
    value = convert(std::move(value).toTensor());
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> tensors = value.toTensorVector();
    value = c10::IValue();
    for (at::Tensor& tensor : tensors) {
      tensor = convert(std::move(tensor));
    }
    value = std::move(tensors);
  }
}

struct Layout {
  c10::DispatchKey vendor;
  c10::DispatchKey flagos;
  c10::KernelFunction (*kernel)();
};

template <c10::DispatchKey vendor>
c10::KernelFunction boxed() {
  return c10::KernelFunction::makeFromBoxedFunction<&run_layout_on_vendor<vendor>>();
}

constexpr std::array kAll = {
    Layout{c10::DispatchKey::SparseCUDA, c10::DispatchKey::SparsePrivateUse1, &boxed<c10::DispatchKey::SparseCUDA>},
    Layout{c10::DispatchKey::SparseCsrCUDA, c10::DispatchKey::SparseCsrPrivateUse1,
           &boxed<c10::DispatchKey::SparseCsrCUDA>},
    Layout{c10::DispatchKey::NestedTensorCUDA, c10::DispatchKey::NestedTensorPrivateUse1,
           &boxed<c10::DispatchKey::NestedTensorCUDA>},
};

}  // namespace

at::Tensor LayoutCall::lend(at::Tensor original) {
  if (!has_layout(original) || !is_flagos(original)) {
    return original;
  }
  for (const Operand& operand : operands_) {
    if (operand.original.is_same(original)) {
      return operand.alias;
    }
  }
  at::Tensor alias = shallow_copy(original);
  move_to(
      alias, vendor_device(original.device()), [&](at::Tensor part) { return call_.lend(std::move(part)); },
      [&](const c10::Storage& storage) {
        c10::Storage vendor = call_.lend(storage);
        storages_.push_back({storage, vendor});
        return vendor;
      });
  operands_.push_back({std::move(original), alias});
  return alias;
}

void LayoutCall::finish() {
  for (const Operand& operand : operands_) {
    if (is_sparse(operand.original)) {
      follow_sparse(call_, operand.original, operand.alias);
    } else if (is_compressed(operand.original)) {
      follow_compressed(call_, operand.original, operand.alias);
    }
  }
}

at::Tensor LayoutCall::take(at::Tensor result) {
  if (!is_vendor(result)) {
    return result;
  }
  for (const Operand& operand : operands_) {
    if (operand.alias.is_same(result)) {
      return operand.original;
    }
  }
  if (result.has_storage()) {
    for (const StoragePair& pair : storages_) {
      if (pair.vendor.unsafeGetStorageImpl() != storage_of(result)) {
        continue;
      }
      if (!has_layout(result)) {
        return adopt(std::move(result), pair.flagos);
      }
      at::Tensor taken = result.use_count() == 1 ? std::move(result) : shallow_copy(result);
      move_to(
          taken, flagos_device(taken.device()), [](at::Tensor part) { return part; },
          [&](const c10::Storage& /*storage*/) { return pair.flagos; });
      return taken;
    }
  }
  return call_.take(std::move(result));
}

at::Tensor take_layout(VendorCall& call, at::Tensor result) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      has_layout(result) && !result.key_set().has(c10::DispatchKey::Quantized),
      "flagos: an operator returned a tensor of ",
      result.key_set().has(c10::DispatchKey::Quantized) ? "quantized type " : "type ", result.scalar_type(),
      ", layout ", result.layout(), " and key set ", toString(result.key_set()),
      "; flagos has dense, sparse, compressed sparse and nested tensors, move the operands to the CPU first");
  at::Tensor taken = result.use_count() == 1 ? std::move(result) : shallow_copy(result);
  move_to(
      taken, flagos_device(taken.device()), [&](at::Tensor part) { return call.take(std::move(part)); },
      [&](const c10::Storage& storage) { return call.take(storage); });
  return taken;
}

template <c10::DispatchKey vendor>
void run_layout_on_vendor(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  VendorCall call(schema.is_mutable() ? Writes::Yes : Writes::No);
  LayoutCall layouts(call);
  at::Tensor foreign;
  for (size_t i = stack->size() - schema.arguments().size(); i < stack->size(); ++i) {
    convert_tensors((*stack)[i], [&](at::Tensor tensor) {
      if (is_vendor(tensor)) {
        foreign = tensor;
      }
      return layouts.lend(std::move(tensor));
    });
    lend_argument(call, (*stack)[i]);
  }
  // What the call has met are our own aliases, too.
  call.allow_mixture();
  call.note_foreign(foreign);
  enter_vendor(call, op);
  with_own_words([&] { op.redispatchBoxed(c10::DispatchKeySet(vendor), stack); });
  call.finish();
  if (schema.is_mutable()) {
    layouts.finish();
  }
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    convert_tensors((*stack)[i], [&](at::Tensor tensor) { return layouts.take(std::move(tensor)); });
  }
}

std::vector<LayoutKernel> layout_kernels() {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  std::vector<LayoutKernel> kernels;
  for (const Layout& layout : kAll) {
    for (const c10::OperatorName& name : dispatcher.getRegistrationsForDispatchKey(layout.vendor)) {
      kernels.push_back({name, layout.flagos, layout.kernel()});
    }
  }
  return kernels;
}

}  // namespace flagos
