#include "core/FlagosCall.h"

#include <utility>

#include "core/FlagosAlias.h"
#include "core/FlagosDevice.h"
#include "core/FlagosErrors.h"
#include "core/FlagosGenerator.h"
#include "core/FlagosLayouts.h"
#include "core/FlagosLender.h"
#include "core/FlagosStorage.h"

namespace flagos {

namespace {

c10::intrusive_ptr<c10::StorageImpl> shared(c10::StorageImpl* storage) {
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
}

}  // namespace

VendorCall::~VendorCall() {
  if (writes_ == Writes::No) {
    return;
  }
  for (const StoragePair& pair : storages_) {
    follow_vendor(*pair.flagos.unsafeGetStorageImpl(), *pair.vendor.unsafeGetStorageImpl());
  }
}

c10::Storage VendorCall::lend_storage(c10::StorageImpl* storage) {
  c10::StorageImpl* vendor = vendor_storage(*storage);
  // A facade that nobody writes to leads to its vendor storage and back without our notes.
  if (vendor != nullptr && writes_ == Writes::No) {
    return shared(vendor);
  }
  if (const auto known = flagos_storages_.find(storage)) {
    return storages_[*known].vendor;
  }
  c10::Storage lent = vendor != nullptr ? shared(vendor) : borrow_storage(shared(storage));
  note_storage(shared(storage), lent);
  return lent;
}

void VendorCall::note_storage(c10::Storage flagos, c10::Storage vendor) {
  flagos_storages_.add(flagos.unsafeGetStorageImpl());
  storages_.push_back({std::move(flagos), std::move(vendor)});
}

at::Tensor VendorCall::lend(at::Tensor original) {
  if (!is_flagos(original)) {
    note_foreign(original);
    return original;
  }
  if (const auto known = originals_.find(original.unsafeGetTensorImpl())) {
    return operands_[*known].alias;
  }
  at::Tensor alias = make_alias(original, lend_storage(storage_of(original)));
  originals_.add(original.unsafeGetTensorImpl());
  c10::StorageImpl* vendor = storage_of(alias);
  operands_.push_back({std::move(original), alias, vendor});
  return alias;
}

std::optional<at::Tensor> VendorCall::lend(const std::optional<at::Tensor>& original) {
  return original ? std::optional<at::Tensor>(lend(*original)) : std::nullopt;
}

c10::Device VendorCall::lend(c10::Device device) { return lend_device(device); }

c10::Stream VendorCall::lend(const c10::Stream& stream) {
  return stream.device_type() == kFlagos ? vendor_stream(stream) : stream;
}

c10::Storage VendorCall::lend(const c10::Storage& storage) {
  if (storage && storage.device_type() == kVendor) {
    foreign_ = storage.device();
  }
  return storage && storage.device_type() == kFlagos ? lend_storage(storage.unsafeGetStorageImpl()) : storage;
}

at::Generator VendorCall::lend(const at::Generator& generator) { return vendor_generator(generator); }

void VendorCall::enter() const {
  if (C10_UNLIKELY(is_mixed())) {
    refuse_mixture(operands_.front().original.device(), *foreign_);
  }
  ensure_vendor_ready();
}

void VendorCall::finish() {
  if (writes_ == Writes::No) {
    return;
  }
  for (const Operand& operand : operands_) {
    if (C10_UNLIKELY(storage_of(operand.alias) != operand.vendor)) {
      replace_storage(operand.original, take_storage(storage_of(operand.alias)));
    }
    follow_geometry(operand.original, operand.alias);
  }
}

c10::Storage VendorCall::take_storage(c10::StorageImpl* vendor) {
  for (const StoragePair& pair : storages_) {
    if (pair.vendor.unsafeGetStorageImpl() == vendor) {
      return pair.flagos;
    }
  }
  for (const Operand& operand : operands_) {
    if (vendor_storage(*storage_of(operand.original)) == vendor) {
      return shared(storage_of(operand.original));
    }
  }
  c10::Storage facade = make_facade(shared(vendor));
  note_storage(facade, shared(vendor));
  return facade;
}

at::Tensor VendorCall::take(at::Tensor result) {
  if (C10_LIKELY(take_fresh(result))) {
    return result;
  }
  return take_shared(std::move(result));
}

at::Tensor VendorCall::take_shared(at::Tensor result) {
  for (const Operand& operand : operands_) {
    if (operand.alias.is_same(result)) {
      return operand.original;
    }
  }
  if (C10_UNLIKELY(has_layout(result) || !result.has_storage())) {
    return take_layout(*this, std::move(result));
  }
  c10::Storage storage = take_storage(storage_of(result));
  return adopt(std::move(result), std::move(storage));
}

}  // namespace flagos
