#include "core/FlagosStorage.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "core/FlagosAllocator.h"
#include "core/FlagosDevice.h"

namespace flagos {

namespace {

void drop_borrowed_storage(void* context) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(context)); }

/// A vendor tensor over the first `nbytes` bytes of a vendor storage.
at::Tensor bytes_of(const c10::intrusive_ptr<c10::StorageImpl>& storage, size_t nbytes) {
  auto impl =
      c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage), kVendorKeys, caffe2::TypeMeta::Make<uint8_t>());
  impl->set_sizes_contiguous({static_cast<int64_t>(nbytes)});
  return at::Tensor(std::move(impl));
}

/// Makes a storage that was none a facade of `vendor`.
void become_facade(c10::StorageImpl& storage, c10::intrusive_ptr<c10::StorageImpl> vendor) noexcept {
  const c10::DeviceIndex index = storage.device().index();
  c10::SymInt nbytes = vendor->sym_nbytes();
  storage.set_data_ptr_noswap(facade_pointer(std::move(vendor), index));
  storage.set_nbytes(std::move(nbytes));
  storage.set_allocator(&flagos_allocator());
}

/// Memory of facades that a thread freed, the first bytes of each naming the next.
struct FreeFacades {
  void* first;
  /// How many more may be kept; none before the thread's first, nor once the thread's own objects are gone.
  size_t room;
  /// Whether what is kept will be freed when the thread ends.
  bool known;
};

#ifdef __SANITIZE_ADDRESS__
/// The sanitizer sees the use of a freed facade only if its memory is not another's already.
constexpr size_t kFreeFacades = 0;
#else
/// 48 kB for a thread at most.
constexpr size_t kFreeFacades = 512;
#endif
/// Plain data, so that what other objects' destructors free finds it in order.
thread_local FreeFacades t_free{nullptr, 0, false};

struct FreeFacadesEnd {
  ~FreeFacadesEnd() {
    t_free.room = 0;
    while (t_free.first != nullptr) {
      void* const memory = t_free.first;
      std::memcpy(&t_free.first, memory, sizeof(void*));
      ::operator delete(memory);
    }
  }
};

C10_NOINLINE void free_facade(void* memory) noexcept {
  if (!t_free.known) {
    t_free.known = true;
    thread_local FreeFacadesEnd end;
    static_cast<void>(end);
    t_free.room = kFreeFacades;
  }
  ::operator delete(memory);
}

}  // namespace

Facade::~Facade() = default;

FLAGOS_HOT void* Facade::operator new(size_t bytes) {
  FreeFacades& kept = t_free;
  void* const memory = kept.first;
  if (C10_UNLIKELY(memory == nullptr)) {
    return ::operator new(bytes);
  }
  std::memcpy(&kept.first, memory, sizeof(void*));
  ++kept.room;
  return memory;
}

FLAGOS_HOT void Facade::operator delete(void* memory) noexcept {
  FreeFacades& kept = t_free;
  if (C10_UNLIKELY(kept.room == 0)) {
    free_facade(memory);
    return;
  }
  std::memcpy(memory, &kept.first, sizeof(void*));
  kept.first = memory;
  --kept.room;
}

FLAGOS_HOT void drop_vendor_storage(void* context) {
  // As a StorageImpl, not as c10::raw::intrusive_ptr::decref would: tensors give up theirs by the same code, so that a
  // call has less of it to load.
  c10::intrusive_ptr<c10::StorageImpl>::reclaim(static_cast<c10::StorageImpl*>(context)).reset();
}

c10::Allocator* facade_allocator() {
  static c10::Allocator* const allocator = &flagos_allocator();
  return allocator;
}

void follow_changed_vendor(c10::StorageImpl& storage, c10::StorageImpl& vendor) noexcept {
  c10::DataPtr& pointer = storage._mutable_data_ptr_no_checks();
  void* data = vendor._mutable_data_ptr_no_checks().get();
  const bool moved = pointer.get() != data;
  if (vendor_storage(pointer) != &vendor) {
    if (moved) {
      become_facade(storage, c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&vendor));
    }
    return;
  }
  if (moved) {
    const c10::Device device = pointer.device();
    pointer = c10::DataPtr(data, pointer.release_context(), &drop_vendor_storage, device);
  }
  if (storage.nbytes() != vendor.nbytes()) {
    storage.set_nbytes(vendor.nbytes());
  }
}

c10::intrusive_ptr<c10::StorageImpl> borrow_storage(c10::intrusive_ptr<c10::StorageImpl> storage) {
  c10::DataPtr& pointer = storage->_mutable_data_ptr_no_checks();
  void* data = pointer.get();
  const c10::Device device = vendor_device(pointer.device());
  const bool resizable = storage->resizable();
  c10::SymInt nbytes = storage->sym_nbytes();
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), std::move(nbytes),
                                               c10::DataPtr(data, storage.release(), &drop_borrowed_storage, device),
                                               c10::GetAllocator(kVendor), resizable);
}

c10::StorageImpl* lending_storage(const c10::StorageImpl& vendor) noexcept {
  const c10::DataPtr& pointer = const_cast<c10::StorageImpl&>(vendor)._mutable_data_ptr_no_checks();
  return pointer.get_deleter() == &drop_borrowed_storage ? static_cast<c10::StorageImpl*>(pointer.get_context())
                                                         : nullptr;
}

void resize_storage(c10::StorageImpl& storage, size_t nbytes) {
  TORCH_CHECK(storage.resizable(), "flagos: asked to resize a storage of ", storage.nbytes(), " bytes to ", nbytes,
              " bytes, but it is not resizable");
  const c10::DeviceGuard guard(vendor_device(storage.device()));
  c10::Allocator* allocator = c10::GetAllocator(kVendor);
  auto fresh = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(nbytes),
                                                     allocator->allocate(nbytes), allocator, true);
  c10::StorageImpl* behind = vendor_storage(storage);
  auto vendor = behind != nullptr ? c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(behind)
                                  : borrow_storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage));
  const size_t kept = std::min(nbytes, storage.nbytes());
  if (kept > 0) {
    bytes_of(fresh, kept).copy_(bytes_of(vendor, kept));
  }
  if (behind == nullptr) {
    become_facade(storage, std::move(fresh));
    return;
  }
  behind->set_data_ptr_noswap(fresh->set_data_ptr(c10::DataPtr()));
  behind->set_nbytes(nbytes);
  follow_vendor(storage, *behind);
}

}  // namespace flagos
