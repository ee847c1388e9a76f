#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include <optional>

#include "core/FlagosMacros.h"
#include "core/FlagosPointerIndex.h"

namespace flagos {

/// Whether the operator may change its operands: their values never matter here, their geometry and storage do.
enum class Writes : bool { No, Yes };

/// One operator call on the vendor's kernels: lends operands to the vendor, takes results back.
///
///     VendorCall call(Writes::No);
///     auto alias = call.lend(tensor);          // any number of operands
///     call.enter();                            // their device becomes current
///     auto result = vendor_kernel(alias);
///     call.finish();                           // what the kernel did to operands reaches the originals
///     return call.take(std::move(result));
///
/// If the kernel throws, finish() is not reached and the originals keep their geometry; their storages follow the
/// vendor's in any case, since a kernel may have moved the memory before it failed.
class FLAGOS_API VendorCall final {
 public:
  explicit VendorCall(Writes writes) : writes_(writes) {}
  ~VendorCall();
  VendorCall(const VendorCall&) = delete;
  VendorCall& operator=(const VendorCall&) = delete;

  /// Returns the operand in the vendor's terms; what is not flagos' passes through unchanged, as do undefined tensors.
  at::Tensor lend(at::Tensor original);
  std::optional<at::Tensor> lend(const std::optional<at::Tensor>& original);
  c10::Device lend(c10::Device device);
  c10::Stream lend(const c10::Stream& stream);
  c10::Storage lend(const c10::Storage& storage);
  static at::Generator lend(const at::Generator& generator);

  /// Makes the device of the first operand current until the call is destroyed.
  void enter();

  /// Carries changed geometry and replaced storages over to the originals.
  void finish();

  /// Returns a vendor result as flagos' own: the original where it is an alias of one, a tensor on that original's
  /// storage where it is a view of it. Throws c10::Error for layouts that flagos has no tensors for.
  at::Tensor take(at::Tensor result);

 private:
  struct Operand {
    at::Tensor original;
    at::Tensor alias;
  };
  /// `flagos` is kept alive by an operand or a result; `vendor` by its facade, or by `owner` where it is borrowed.
  struct StoragePair {
    c10::StorageImpl* flagos;
    c10::StorageImpl* vendor;
    c10::intrusive_ptr<c10::StorageImpl> owner;
  };

  c10::Storage lend_storage(c10::StorageImpl* storage);
  c10::Storage take_storage(c10::StorageImpl* vendor);
  void note_storage(c10::StorageImpl* flagos, c10::StorageImpl* vendor, c10::intrusive_ptr<c10::StorageImpl> owner);
  void note_device(c10::Device device);

  c10::SmallVector<Operand, 4> operands_;
  c10::SmallVector<StoragePair, 4> storages_;
  PointerIndex originals_;
  PointerIndex aliases_;
  PointerIndex flagos_storages_;
  PointerIndex vendor_storages_;
  std::optional<c10::Device> device_;
  std::optional<c10::DeviceGuard> guard_;
  Writes writes_;
};

}  // namespace flagos
