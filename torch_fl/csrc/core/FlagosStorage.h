#pragma once

#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>
#include <c10/macros/Macros.h>

#include <cstddef>
#include <utility>

#include "core/FlagosDevice.h"
#include "core/FlagosMacros.h"

namespace flagos {

// Facade storage
// --------------
// The vendor's StorageImpl owns the memory. The flagos StorageImpl is a facade of it: its DataPtr holds the same
// address and, as context, one reference to the vendor's StorageImpl. Vendor kernels are given the vendor's StorageImpl
// itself, so that overlap checks, is_alias_of and record_stream work as they do without this plugin, and so that inputs
// are only read.
//
// Invariant, between operator calls: a facade and its vendor storage have the same address and size, and one vendor
// storage has one facade.

/// Deleter of every facade's DataPtr, and the mark by which facades are recognised.
void drop_vendor_storage(void* context);

/// The allocator that facades name, which flagos_allocator() is.
c10::Allocator* facade_allocator();

/// Returns the vendor storage behind a pointer, or null if it is no facade's (from_blob, DLPack, another allocator).
inline c10::StorageImpl* vendor_storage(const c10::DataPtr& pointer) noexcept {
  return pointer.get_deleter() == &drop_vendor_storage ? static_cast<c10::StorageImpl*>(pointer.get_context())
                                                       : nullptr;
}

/// As above for a storage.
inline c10::StorageImpl* vendor_storage(const c10::StorageImpl& storage) noexcept {
  // The unchecked accessor is not const, though it only returns the member.
  return vendor_storage(const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks());
}

/// Returns a pointer that owns one reference to `vendor` and reports device `index` of flagos.
inline c10::DataPtr facade_pointer(c10::intrusive_ptr<c10::StorageImpl> vendor, c10::DeviceIndex index) {
  void* data = vendor->_mutable_data_ptr_no_checks().get();
  return {data, vendor.release(), &drop_vendor_storage, c10::Device(kFlagos, index)};
}

/// The StorageImpl of facades that make_facade() makes. Every result costs one, so a thread keeps the memory of some
/// that it freed for those that it makes.
class Facade final : public c10::StorageImpl {
 public:
  using c10::StorageImpl::StorageImpl;
  /// Defined elsewhere, so that FLAGOS_HOT can place it.
  FLAGOS_HOT ~Facade() override;
  static void* operator new(size_t bytes);
  static void operator delete(void* memory) noexcept;
};

/// Returns a new facade of `vendor`, which must not have one yet.
inline c10::Storage make_facade(c10::intrusive_ptr<c10::StorageImpl> vendor) {
  const c10::DeviceIndex index = vendor->_mutable_data_ptr_no_checks().device().index();
  const bool resizable = vendor->resizable();
  const auto nbytes = static_cast<int64_t>(vendor->nbytes());
  return c10::Storage(c10::make_intrusive<Facade>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                                  facade_pointer(std::move(vendor), index), facade_allocator(),
                                                  resizable));
}

/// follow_vendor() where something differs.
void follow_changed_vendor(c10::StorageImpl& storage, c10::StorageImpl& vendor) noexcept;

/// Makes address and size of a flagos storage equal to those of the vendor storage behind it, which a kernel may have
/// resized. A storage that was no facade, and whose borrowed twin has moved to other memory, becomes one.
inline void follow_vendor(c10::StorageImpl& storage, c10::StorageImpl& vendor) noexcept {
  const bool moved = storage._mutable_data_ptr_no_checks().get() != vendor._mutable_data_ptr_no_checks().get();
  if (C10_UNLIKELY(moved || storage.nbytes() != vendor.nbytes())) {
    follow_changed_vendor(storage, vendor);
  }
}

/// Returns a vendor storage over the memory of a storage that is no facade; it keeps `storage` alive.
c10::intrusive_ptr<c10::StorageImpl> borrow_storage(c10::intrusive_ptr<c10::StorageImpl> storage);

/// Returns the flagos storage that `vendor` borrows its memory from, or null if it owns its memory.
c10::StorageImpl* lending_storage(const c10::StorageImpl& vendor) noexcept;

/// Resizes a flagos storage to `nbytes`, keeping its content up to the smaller size. Throws c10::Error if it is not
/// resizable or there is not enough memory; it is unchanged then.
FLAGOS_API void resize_storage(c10::StorageImpl& storage, size_t nbytes);

}  // namespace flagos
