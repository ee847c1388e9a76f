#include "core/FlagosSharing.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "core/FlagosAlias.h"
#include "core/FlagosDevice.h"
#include "core/FlagosStorage.h"

namespace flagos {

namespace {

using StoragePointer = c10::intrusive_ptr<c10::StorageImpl>;

/// Which flagos storage stands for a vendor storage that both sides can see. A vendor storage that never left needs no
/// entry: its facade is known from the tensors of the call.
class SharedStorages final {
 public:
  void note(c10::StorageImpl* vendor, const StoragePointer& flagos) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (entries_.size() >= limit_) {
      forget_dead();
    }
    entries_.insert_or_assign(vendor, c10::weak_intrusive_ptr<c10::StorageImpl>(flagos));
  }

  /// Returns the storage noted for `vendor`, or a null pointer. A dead entry's address may be another storage's by now.
  StoragePointer find(c10::StorageImpl* vendor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = entries_.find(vendor);
    StoragePointer flagos = found == entries_.end() ? StoragePointer() : found->second.lock();
    return flagos && vendor_storage(*flagos) == vendor ? flagos : StoragePointer();
  }

 private:
  void forget_dead() {
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      entry = entry->second.expired() ? entries_.erase(entry) : std::next(entry);
    }
    limit_ = std::max(kFirstLimit, 2 * entries_.size());
  }

  static constexpr size_t kFirstLimit = 64;

  std::mutex mutex_;
  size_t limit_ = kFirstLimit;
  std::unordered_map<c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> entries_;
};

SharedStorages& shared_storages() {
  // Never destroyed: tensors may be shared until the process ends.
  static auto* instance = new SharedStorages();
  return *instance;
}

void check_dense(const at::Tensor& tensor, c10::DeviceType expected, const char* function) {
  TORCH_CHECK_TYPE(tensor.defined() && tensor.device().type() == expected, "flagos: ", function,
                   " expects a tensor on device type '", c10::DeviceTypeName(expected, /*lower_case=*/true), "', got ",
                   tensor.defined() ? c10::str("one on ", tensor.device()) : "an undefined one");
  TORCH_CHECK_TYPE(tensor.layout() == c10::kStrided && tensor.has_storage(), "flagos: ", function,
                   " expects a dense tensor, got one of layout ", tensor.layout());
}

void forbid_resizing(c10::StorageImpl& one, c10::StorageImpl& other) {
  one.set_resizable(false);
  other.set_resizable(false);
}

StoragePointer vendor_storage_for(const StoragePointer& flagos) {
  c10::StorageImpl* behind = vendor_storage(*flagos);
  if (behind == nullptr) {
    return borrow_storage(flagos);
  }
  shared_storages().note(behind, flagos);
  return StoragePointer::reclaim_copy(behind);
}

StoragePointer flagos_storage_for(const StoragePointer& vendor) {
  if (c10::StorageImpl* lender = lending_storage(*vendor)) {
    return StoragePointer::reclaim_copy(lender);
  }
  StoragePointer flagos = shared_storages().find(vendor.get());
  if (!flagos) {
    flagos = make_facade(vendor).getWeakStorageImpl().lock();
    shared_storages().note(vendor.get(), flagos);
  }
  return flagos;
}

}  // namespace

at::Tensor to_vendor(const at::Tensor& tensor) {
  check_dense(tensor, kFlagos, "to_vendor");
  const auto flagos = StoragePointer::reclaim_copy(storage_of(tensor));
  StoragePointer vendor = vendor_storage_for(flagos);
  forbid_resizing(*flagos, *vendor);
  return make_alias(tensor, c10::Storage(std::move(vendor)));
}

at::Tensor from_vendor(const at::Tensor& tensor) {
  check_dense(tensor, kVendor, "from_vendor");
  const auto vendor = StoragePointer::reclaim_copy(storage_of(tensor));
  StoragePointer flagos = flagos_storage_for(vendor);
  forbid_resizing(*flagos, *vendor);
  // The caller holds `tensor`, so that this makes a new TensorImpl, without autograd's data and Python's object.
  at::Tensor result = adopt(tensor, c10::Storage(std::move(flagos)));
  result.unsafeGetTensorImpl()->set_version_counter(tensor.unsafeGetTensorImpl()->version_counter());
  return result;
}

}  // namespace flagos
