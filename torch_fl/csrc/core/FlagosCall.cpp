#include "core/FlagosCall.h"

#include <c10/util/Exception.h>

#include <utility>

#include "core/FlagosAlias.h"
#include "core/FlagosDevice.h"
#include "core/FlagosGenerator.h"
#include "core/FlagosStorage.h"

namespace flagos {

namespace {

constexpr c10::DispatchKeySet kForeignLayouts({c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                                               c10::DispatchKey::Quantized, c10::DispatchKey::NestedTensor});

void check_layout(const at::Tensor& result) {
  TORCH_CHECK_NOT_IMPLEMENTED(!result.key_set().has_any(kForeignLayouts) && result.has_storage(),
                              "flagos: an operator returned a tensor of layout ", result.layout(), " and key set ",
                              toString(result.key_set()),
                              "; flagos has dense tensors only, move the operands to the CPU first");
}

bool same_geometry(const c10::TensorImpl& left, const c10::TensorImpl& right) {
  return left.sizes().equals(right.sizes()) && left.strides().equals(right.strides()) &&
         left.storage_offset() == right.storage_offset();
}

}  // namespace

VendorCall::~VendorCall() {
  if (writes_ == Writes::No) {
    return;
  }
  for (StoragePair& pair : storages_) {
    if (!pair.owner) {
      follow_vendor(*pair.flagos);
    } else if (pair.vendor->_mutable_data_ptr_no_checks().get() != pair.flagos->_mutable_data_ptr_no_checks().get()) {
      become_facade(*pair.flagos, std::move(pair.owner));
    }
  }
}

void VendorCall::note_device(c10::Device device) {
  if (!device_) {
    device_ = vendor_device(device);
  }
}

void VendorCall::note_storage(c10::StorageImpl* flagos, c10::StorageImpl* vendor,
                              c10::intrusive_ptr<c10::StorageImpl> owner) {
  flagos_storages_.add(flagos);
  vendor_storages_.add(vendor);
  storages_.push_back({flagos, vendor, std::move(owner)});
}

c10::Storage VendorCall::lend_storage(c10::StorageImpl* storage) {
  if (const auto known = flagos_storages_.find(storage)) {
    return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storages_[*known].vendor));
  }
  if (c10::StorageImpl* vendor = vendor_storage(*storage)) {
    note_storage(storage, vendor, {});
    return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(vendor));
  }
  auto owner = borrow_storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
  note_storage(storage, owner.get(), owner);
  return c10::Storage(std::move(owner));
}

at::Tensor VendorCall::lend(at::Tensor original) {
  if (!is_flagos(original)) {
    return original;
  }
  if (const auto known = originals_.find(original.unsafeGetTensorImpl())) {
    return operands_[*known].alias;
  }
  note_device(original.device());
  at::Tensor alias = make_alias(original, lend_storage(storage_of(original)));
  originals_.add(original.unsafeGetTensorImpl());
  aliases_.add(alias.unsafeGetTensorImpl());
  operands_.push_back({std::move(original), alias});
  return alias;
}

std::optional<at::Tensor> VendorCall::lend(const std::optional<at::Tensor>& original) {
  return original ? std::optional<at::Tensor>(lend(*original)) : std::nullopt;
}

c10::Device VendorCall::lend(c10::Device device) {
  if (device.type() != kFlagos) {
    return device;
  }
  const c10::Device resolved(kVendor, resolve_index(device.index()));
  note_device(resolved);
  return resolved;
}

c10::Stream VendorCall::lend(const c10::Stream& stream) {
  return stream.device_type() == kFlagos ? vendor_stream(stream) : stream;
}

c10::Storage VendorCall::lend(const c10::Storage& storage) {
  return storage && storage.device_type() == kFlagos ? lend_storage(storage.unsafeGetStorageImpl()) : storage;
}

at::Generator VendorCall::lend(const at::Generator& generator) { return vendor_generator(generator); }

void VendorCall::enter() {
  ensure_vendor_ready();
  // Where there is one device, it is current.
  if (device_ && device_count() > 1) {
    guard_.emplace(*device_);
  }
}

void VendorCall::finish() {
  if (writes_ == Writes::No) {
    return;
  }
  for (const Operand& operand : operands_) {
    c10::TensorImpl& original = *operand.original.unsafeGetTensorImpl();
    const c10::TensorImpl& alias = *operand.alias.unsafeGetTensorImpl();
    c10::Storage storage = take_storage(storage_of(operand.alias));
    if (storage.unsafeGetStorageImpl() != storage_of(operand.original)) {
      replace_storage(operand.original, std::move(storage));
    }
    if (!same_geometry(original, alias)) {
      original.set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
    }
  }
}

c10::Storage VendorCall::take_storage(c10::StorageImpl* vendor) {
  if (const auto known = vendor_storages_.find(vendor)) {
    return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storages_[*known].flagos));
  }
  c10::Storage facade = make_facade(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(vendor));
  note_storage(facade.unsafeGetStorageImpl(), vendor, {});
  return facade;
}

at::Tensor VendorCall::take(at::Tensor result) {
  if (!is_vendor(result)) {
    return result;
  }
  if (const auto known = aliases_.find(result.unsafeGetTensorImpl())) {
    return operands_[*known].original;
  }
  check_layout(result);
  c10::Storage storage = take_storage(storage_of(result));
  return adopt(std::move(result), std::move(storage));
}

}  // namespace flagos
