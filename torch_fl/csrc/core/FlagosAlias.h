#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <cstddef>
#include <optional>
#include <utility>

#include "core/FlagosDevice.h"
#include "core/FlagosStorage.h"

namespace flagos {

inline bool is_flagos(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->device_type() == kFlagos;
}

inline bool is_vendor(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->device_type() == kVendor;
}

inline c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

constexpr c10::DispatchKeySet kFlagosBackend(c10::BackendComponent::PrivateUse1Bit);
constexpr c10::DispatchKeySet kVendorBackend(c10::BackendComponent::CUDABit);
constexpr c10::DispatchKeySet kDense(c10::DispatchKey::Dense);
constexpr c10::DispatchKeySet kLayouts({c10::DispatchKey::Dense, c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                                        c10::DispatchKey::Quantized, c10::DispatchKey::NestedTensor});

/// Whether the tensor is a dense one of `backend`; one load and one comparison, and no for undefined tensors.
inline bool is_dense(const at::Tensor& tensor, c10::DispatchKeySet backend) {
  return (tensor.unsafeGetTensorImpl()->key_set() & (kLayouts | backend)) == (kDense | backend);
}
inline bool is_dense_flagos(const at::Tensor& tensor) { return is_dense(tensor, kFlagosBackend); }
inline bool is_dense_vendor(const at::Tensor& tensor) { return is_dense(tensor, kVendorBackend); }

/// Returns `keys` without `dropped`, backend components included, and with `added`.
inline c10::DispatchKeySet exchange(c10::DispatchKeySet keys, c10::DispatchKeySet dropped, c10::DispatchKeySet added) {
  return {c10::DispatchKeySet::RAW, (keys.raw_repr() & ~dropped.raw_repr()) | added.raw_repr()};
}

constexpr c10::DispatchKeySet kFlagosOnly = kFlagosBackend | c10::DispatchKeySet(c10::DispatchKey::AutocastPrivateUse1);
constexpr c10::DispatchKeySet kVendorOnly = kVendorBackend | c10::DispatchKeySet(c10::DispatchKey::AutocastCUDA);

/// Returns the key set of the same tensor on the vendor's device, as TensorImpl::_change_backend_component_keys would.
/// Conjugate and negative bits stay; Python's keys go, since they belong to the original's PyObject.
inline c10::DispatchKeySet vendor_keys(c10::DispatchKeySet keys) {
  return exchange(keys, kFlagosOnly | c10::python_ks, kVendorOnly);
}

/// The reverse, for results.
inline c10::DispatchKeySet flagos_keys(c10::DispatchKeySet keys) { return exchange(keys, kVendorOnly, kFlagosOnly); }

/// Reaches protected members of TensorImpl. Those that are no bit fields go through pointers to members, which a
/// derived class may form; bit fields have none, so that copy_flags() looks at both objects as this class, which adds
/// nothing.
struct ImplAccess : c10::TensorImpl {
  static c10::Storage& storage(c10::TensorImpl& impl) { return impl.*(&ImplAccess::storage_); }
  static c10::DispatchKeySet& keys(c10::TensorImpl& impl) { return impl.*(&ImplAccess::key_set_); }
  static c10::VariableVersion& version(c10::TensorImpl& impl) { return impl.*(&ImplAccess::version_counter_); }
  static std::optional<c10::Device>& device(c10::TensorImpl& impl) { return impl.*(&ImplAccess::device_opt_); }

  /// What the vendor's kernels look at: geometry, and the few flags that go with it.
  static void copy_metadata(const c10::TensorImpl& from, c10::TensorImpl& to) {
    if (C10_UNLIKELY(from.*(&ImplAccess::extra_meta_) != nullptr)) {
      copy_generic_tensor_metadata(&from, &to);
    } else {
      to.*(&ImplAccess::sizes_and_strides_) = from.*(&ImplAccess::sizes_and_strides_);
      to.*(&ImplAccess::storage_offset_) = from.*(&ImplAccess::storage_offset_);
      to.*(&ImplAccess::numel_) = from.*(&ImplAccess::numel_);
    }
    static_cast<ImplAccess&>(to).copy_flags(static_cast<const ImplAccess&>(from));
  }

 private:
  void copy_flags(const ImplAccess& from) {
    is_contiguous_ = from.is_contiguous_;
    is_channels_last_ = from.is_channels_last_;
    is_channels_last_contiguous_ = from.is_channels_last_contiguous_;
    is_channels_last_3d_ = from.is_channels_last_3d_;
    is_channels_last_3d_contiguous_ = from.is_channels_last_3d_contiguous_;
    is_non_overlapping_and_dense_ = from.is_non_overlapping_and_dense_;
    is_wrapped_number_ = from.is_wrapped_number_;
    // A kernel that would resize what must not be resized shall refuse before it has written anything.
    allow_tensor_metadata_change_ = from.allow_tensor_metadata_change_;
  }
};

/// Makes `to`, a new TensorImpl over vendor storage, the vendor's twin of `from`, a flagos tensor: its geometry, flags
/// and version counter.
inline void equip_alias(const c10::TensorImpl& from, c10::TensorImpl& to) {
  ImplAccess::copy_metadata(from, to);
  ImplAccess::keys(to) = vendor_keys(from.key_set());
  ImplAccess::version(to) = from.version_counter();
  ImplAccess::device(to) = vendor_device(from.device());
}

/// Returns a vendor tensor with the geometry, flags and version counter of `tensor`, a flagos tensor, over `storage`.
///
/// It is private to one operator call. `tensor` is only read, so that any number of threads may share it.
inline at::Tensor make_alias(const at::Tensor& tensor, c10::Storage storage) {
  const c10::TensorImpl& from = *tensor.unsafeGetTensorImpl();
  // The VIEW constructor allocates no version counter; the alias counts on its original's.
  auto impl =
      c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage), kVendorKeys, from.dtype());
  equip_alias(from, *impl);
  return at::Tensor(std::move(impl));
}

/// Makes up to `count` aliases in one piece of memory, for lists of operands: allocators keep only a few freed blocks
/// of a size at hand, and a list asks for dozens. The memory goes when the last of the aliases does, which may be after
/// the call: a vendor's kernel may keep one.
class AliasBlock final {
 public:
  explicit AliasBlock(size_t count);
  ~AliasBlock();
  AliasBlock(const AliasBlock&) = delete;
  AliasBlock& operator=(const AliasBlock&) = delete;

  /// As make_alias(), which takes over when `count` aliases have been made.
  at::Tensor make(const at::Tensor& tensor, c10::Storage storage);

 private:
  friend struct BlockAlias;
  struct Shared;
  struct Place;
  static void drop(Shared* shared, size_t holders) noexcept;

  Shared* shared_;
  size_t count_;
  size_t made_ = 0;
};

/// Whether nobody but the caller holds `result` or its storage: it is neither an operand, nor a view of one, nor shares
/// memory with another result.
inline bool is_fresh(const at::Tensor& result) {
  return result.use_count() == 1 && result.unsafeGetTensorImpl()->unsafe_storage().use_count() == 1;
}

/// Returns `result`, a dense vendor tensor that is_fresh(), as a flagos tensor on a new facade, by rewriting it.
inline at::Tensor adopt_fresh(at::Tensor result) {
  c10::TensorImpl& impl = *result.unsafeGetTensorImpl();
  c10::Storage& storage = ImplAccess::storage(impl);
  storage = make_facade(c10::intrusive_ptr<c10::StorageImpl>::reclaim(storage.unsafeReleaseStorageImpl()));
  ImplAccess::keys(impl) = flagos_keys(impl.key_set());
  ImplAccess::device(impl) = flagos_device(*ImplAccess::device(impl));
  return result;
}

/// Returns `result`, a vendor tensor, as a flagos tensor over `storage`. Rewrites it in place if nobody else holds it,
/// makes a new TensorImpl otherwise.
at::Tensor adopt(at::Tensor result, c10::Storage storage);

/// Puts another storage under a flagos tensor, as set_ does.
void replace_storage(const at::Tensor& tensor, c10::Storage storage);

/// Carries the geometry that a kernel gave an alias over to its original.
void follow_geometry(const at::Tensor& original, const at::Tensor& alias);

/// Throws c10::Error unless `result` is a dense tensor with a storage, the only kind flagos has.
void check_layout(const at::Tensor& result);

}  // namespace flagos
