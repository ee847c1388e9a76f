#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include "core/FlagosDevice.h"

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

/// Returns a vendor tensor with the geometry, flags and version counter of `tensor`, a flagos tensor, over `storage`.
///
/// It is private to one operator call. `tensor` is only read, so that any number of threads may share it.
at::Tensor make_alias(const at::Tensor& tensor, c10::Storage storage);

/// Returns `result`, a vendor tensor, as a flagos tensor over `storage`. Rewrites it in place if nobody else holds it,
/// makes a new TensorImpl otherwise.
at::Tensor adopt(at::Tensor result, c10::Storage storage);

/// Puts another storage under a flagos tensor, as set_ does.
void replace_storage(const at::Tensor& tensor, c10::Storage storage);

}  // namespace flagos
