// Device tensors as the CPU kernels see them, for the length of one call.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include "device.h"

namespace software {

// The CPU aliases of one call's operands.
//
// Operands are only read: an alias is a tensor of its own over the same memory. Operands that share
// a storage get aliases that share one, so that overlap checks hold. What the kernel did to aliases
// of outputs (new memory, new sizes) is carried over by `write_back`; if the kernel throws, nothing
// is.
class Aliases {
 public:
  // `written`: the kernel may write to this operand, or resize it.
  at::Tensor alias(const at::Tensor& tensor, bool written);

  // Remembers a host operand that is passed as it is, so that a result over its memory is copied,
  // not adopted.
  void keep_host(const at::Tensor& tensor);

  // The device's tensor for one of the kernel's results: the operand behind an alias, a view of an
  // operand, or the result itself with its memory moved to `device`.
  at::Tensor restore(at::Tensor result, c10::Device device);

  void write_back();

 private:
  at::Tensor alias_layout(const at::Tensor& tensor, bool written);
  at::Tensor restore_layout(at::Tensor result, c10::Device device);

  struct AliasedTensor {
    at::Tensor original;
    at::Tensor alias;
    bool written;
  };
  struct AliasedStorage {
    c10::Storage original;
    c10::Storage alias;
  };

  c10::Storage alias_storage(const c10::Storage& storage, bool written);
  static void write_back_storage(const AliasedStorage& storage, c10::Device device);

  c10::SmallVector<AliasedTensor, 4> tensors_;
  c10::SmallVector<AliasedStorage, 4> storages_;
  c10::SmallVector<const c10::StorageImpl*, 2> host_storages_;
};

}  // namespace software
