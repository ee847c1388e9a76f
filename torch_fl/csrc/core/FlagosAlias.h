#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
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

/// Reaches protected members of TensorImpl, by pointers to members, which a derived class may form. Bit fields have
/// none, so that functions on them look at an object as this class, which adds nothing.
struct ImplAccess : c10::TensorImpl {
  static c10::Storage& storage(c10::TensorImpl& impl) { return impl.*(&ImplAccess::storage_); }
  static c10::DispatchKeySet& keys(c10::TensorImpl& impl) { return impl.*(&ImplAccess::key_set_); }
  static c10::VariableVersion& version(c10::TensorImpl& impl) { return impl.*(&ImplAccess::version_counter_); }
  static std::optional<c10::Device>& device(c10::TensorImpl& impl) { return impl.*(&ImplAccess::device_opt_); }

  /// Whether `impl` has data that plain tensors do without: symbolic sizes, a backend's own, errors to throw.
  static bool has_extra_meta(const c10::TensorImpl& impl) { return impl.*(&ImplAccess::extra_meta_) != nullptr; }

  /// What the vendor's kernels look at: geometry, type, device, key set, and the flags that go with them. Not who
  /// answers for these, as a subclass in Python may: a copy answers for itself.
  C10_ALWAYS_INLINE static void copy_metadata(const c10::TensorImpl& from, c10::TensorImpl& to) {
    if (C10_UNLIKELY(has_extra_meta(from))) {
      copy_generic_tensor_metadata(&from, &to);
      to.set_allow_tensor_metadata_change(from.allow_tensor_metadata_change());
    } else {
      to.*(&ImplAccess::sizes_and_strides_) = from.*(&ImplAccess::sizes_and_strides_);
      copy_plain_members(from, to);
      static_cast<ImplAccess&>(to).answer_for_itself();
    }
  }

  /// Whether nothing was attached to `impl` that copy_metadata() would leave there.
  static bool is_bare(const c10::TensorImpl& impl) {
    return impl.autograd_meta() == nullptr && !has_extra_meta(impl) && impl.pyobj_slot()->load_pyobj() == nullptr;
  }

  /// Whether both have the same sizes, strides and offset; without calls, since written operands are compared each
  /// time.
  static bool same_geometry(const c10::TensorImpl& left, const c10::TensorImpl& right) {
    const auto& one = left.*(&ImplAccess::sizes_and_strides_);
    const auto& other = right.*(&ImplAccess::sizes_and_strides_);
    bool same =
        one.size() == other.size() && left.*(&ImplAccess::storage_offset_) == right.*(&ImplAccess::storage_offset_);
    for (size_t i = 0; same && i < one.size(); ++i) {
      same = one.sizes_data()[i] == other.sizes_data()[i] && one.strides_data()[i] == other.strides_data()[i];
    }
    return same;
  }

 private:
  /// The members from the offset to the key set are plain data, in the order of their declaration: offset, number of
  /// elements, type, device, all flags, key set. One by one, the flags alone would take more instructions than all else
  /// that an alias is filled with.
  static void copy_plain_members(const c10::TensorImpl& from, c10::TensorImpl& to) {
    const auto* first = reinterpret_cast<const char*>(&(from.*(&ImplAccess::storage_offset_)));
    const auto* end = reinterpret_cast<const char*>(&(from.*(&ImplAccess::key_set_)) + 1);
    std::memcpy(&(to.*(&ImplAccess::storage_offset_)), first, end - first);
  }

  void answer_for_itself() {
    reserved_ = false;
    sizes_strides_policy_ = 0;
    has_symbolic_sizes_strides_ = false;
    custom_sizes_strides_ = 0;
    device_policy_ = false;
    layout_policy_ = false;
    custom_device_ = false;
    custom_layout_ = false;
    python_custom_sizes_strides_ = 0;
    python_custom_device_ = false;
    python_custom_layout_ = false;
  }
};

/// Whether the operator may write to an operand. What it may write to shares its original's version counter.
enum class Access : bool { Read, Write };

/// Gives `to` a version counter. One that is written to shares its original's, whatever a kernel does to it. Any other
/// has one of its own, which it keeps from call to call: no kernel counts up what it only reads, and to share
/// the original's costs two atomic operations per operand on memory that nothing else in the call touches. Without any
/// counter, a kernel could not write to a detached copy; with one, autograd would refuse an inference tensor.
C10_ALWAYS_INLINE void equip_version(const c10::TensorImpl& from, c10::TensorImpl& to, Access access) {
  const c10::VariableVersion& original = from.version_counter();
  c10::VariableVersion& version = ImplAccess::version(to);
  if (access == Access::Write) {
    version = original;
  } else if (C10_UNLIKELY(version.enabled() != original.enabled())) {
    version = original.enabled() ? c10::VariableVersion(0) : c10::VariableVersion();
  }
}

/// Makes `to`, a TensorImpl over vendor storage, the vendor's twin of `from`, a flagos tensor: its geometry and flags.
C10_ALWAYS_INLINE void equip_alias(const c10::TensorImpl& from, c10::TensorImpl& to, Access access) {
  ImplAccess::copy_metadata(from, to);
  ImplAccess::keys(to) = vendor_keys(from.key_set());
  ImplAccess::device(to) = std::optional<c10::Device>(vendor_device(*ImplAccess::device(to)));
  equip_version(from, to, access);
}

/// Returns a vendor tensor with the geometry and flags of `tensor`, a flagos tensor, over `storage`.
///
/// It is private to one operator call. `tensor` is only read, so that any number of threads may share it.
inline at::Tensor make_alias(const at::Tensor& tensor, c10::Storage storage, Access access = Access::Write) {
  const c10::TensorImpl& from = *tensor.unsafeGetTensorImpl();
  // The VIEW constructor allocates no version counter.
  auto impl =
      c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage), kVendorKeys, from.dtype());
  equip_alias(from, *impl, access);
  return at::Tensor(std::move(impl));
}

/// Whether nobody but the caller holds `result` or its storage: it is neither an operand, nor a view of one, nor shares
/// memory with another result.
inline bool is_fresh(const at::Tensor& result) {
  return result.use_count() == 1 && result.unsafeGetTensorImpl()->unsafe_storage().use_count() == 1;
}

/// Makes `result`, a dense vendor tensor that is_fresh(), a flagos tensor on a new facade.
inline void adopt_fresh(at::Tensor& result) {
  c10::TensorImpl& impl = *result.unsafeGetTensorImpl();
  c10::Storage& storage = ImplAccess::storage(impl);
  storage = make_facade(c10::intrusive_ptr<c10::StorageImpl>::reclaim(storage.unsafeReleaseStorageImpl()));
  ImplAccess::keys(impl) = flagos_keys(impl.key_set());
  ImplAccess::device(impl) = flagos_device(*ImplAccess::device(impl));
}

/// Returns `result`, a vendor tensor, as a flagos tensor over `storage`. Rewrites it in place if nobody else holds it,
/// makes a new TensorImpl otherwise.
at::Tensor adopt(at::Tensor result, c10::Storage storage);

/// Puts another storage under a flagos tensor, as set_ does.
void replace_storage(const at::Tensor& tensor, c10::Storage storage);

/// follow_geometry() where it differs.
void follow_changed_geometry(c10::TensorImpl& original, const c10::TensorImpl& alias);

/// Carries the geometry that a kernel gave an alias over to its original.
inline void follow_geometry(const at::Tensor& original, const at::Tensor& alias) {
  c10::TensorImpl& to = *original.unsafeGetTensorImpl();
  const c10::TensorImpl& from = *alias.unsafeGetTensorImpl();
  if (C10_UNLIKELY(!ImplAccess::same_geometry(to, from))) {
    follow_changed_geometry(to, from);
  }
}

/// Throws c10::Error unless `result` is a dense tensor with a storage, the only kind flagos has.
void check_layout(const at::Tensor& result);

}  // namespace flagos
