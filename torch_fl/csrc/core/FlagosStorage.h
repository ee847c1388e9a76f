#pragma once

#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

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

/// Returns the vendor storage behind `storage`, or null if it is no facade (from_blob, DLPack, another allocator).
c10::StorageImpl* vendor_storage(const c10::StorageImpl& storage) noexcept;

/// As above for a DataPtr.
c10::StorageImpl* vendor_storage(const c10::DataPtr& pointer) noexcept;

/// Returns a pointer that owns one reference to `vendor` and reports device `index` of flagos.
c10::DataPtr facade_pointer(c10::intrusive_ptr<c10::StorageImpl> vendor, c10::DeviceIndex index);

/// Returns a new facade of `vendor`, which must not have one yet.
c10::Storage make_facade(c10::intrusive_ptr<c10::StorageImpl> vendor);

/// Makes address and size of a facade equal to those of its vendor storage, which a kernel may have resized.
void follow_vendor(c10::StorageImpl& facade) noexcept;

/// Returns a vendor storage over the memory of a storage that is no facade; it keeps `storage` alive.
c10::intrusive_ptr<c10::StorageImpl> borrow_storage(c10::intrusive_ptr<c10::StorageImpl> storage);

/// Returns the flagos storage that `vendor` borrows its memory from, or null if it owns its memory.
c10::StorageImpl* lending_storage(const c10::StorageImpl& vendor) noexcept;

/// Makes `storage`, whose borrowed twin a kernel has resized, a facade of that twin.
void become_facade(c10::StorageImpl& storage, c10::intrusive_ptr<c10::StorageImpl> vendor) noexcept;

/// Resizes a flagos storage to `nbytes`, keeping its content up to the smaller size. Throws c10::Error if it is not
/// resizable or there is not enough memory; it is unchanged then.
FLAGOS_API void resize_storage(c10::StorageImpl& storage, size_t nbytes);

}  // namespace flagos
