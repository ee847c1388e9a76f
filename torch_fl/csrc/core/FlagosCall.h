#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include <optional>

#include "core/FlagosAlias.h"
#include "core/FlagosMacros.h"
#include "core/FlagosPointerIndex.h"

namespace flagos {

/// Whether the operator may change its operands: their values never matter here, their geometry and storage do.
enum class Writes : bool { No, Yes };

/// One operator call on the vendor's kernels, for any operator: lends operands to the vendor, takes results back. Hot
/// operators have their calls compiled for their own arguments (FlagosUnboxed.h).
///
///     VendorCall call(Writes::No);
///     auto alias = call.lend(tensor);          // any number of operands
///     call.enter();                            // the vendor is ready
///     auto result = vendor_kernel(alias);
///     call.finish();                           // what the kernel did to operands reaches the originals
///     return call.take(std::move(result));
///
/// If the kernel throws, finish() is not reached and the originals keep their geometry; their storages follow the
/// vendor's in any case, since a kernel may have moved the memory before it failed.
///
/// No device is made current: the vendor's kernel sees the same operands and the same current device as in a call that
/// does without flagos, and switches devices where it has to.
class FLAGOS_API VendorCall final {
 public:
  explicit VendorCall(Writes writes) : writes_(writes) {}
  ~VendorCall();
  VendorCall(const VendorCall&) = delete;
  VendorCall& operator=(const VendorCall&) = delete;

  /// Returns the operand in the vendor's terms; what is not flagos' passes through unchanged, as do undefined tensors.
  at::Tensor lend(at::Tensor original);
  std::optional<at::Tensor> lend(const std::optional<at::Tensor>& original);
  static c10::Device lend(c10::Device device);
  static c10::Stream lend(const c10::Stream& stream);
  c10::Storage lend(const c10::Storage& storage);
  static at::Generator lend(const at::Generator& generator);

  /// Makes the vendor ready; throws c10::Error when there is no device, or when an operand that was to be lent is on
  /// the vendor's own device type, beside operands of flagos.
  void enter() const;

  /// Whether such an operand was met.
  bool is_mixed() const { return foreign_.has_value() && !operands_.empty(); }

  /// Lets such operands be: for copies.
  void allow_mixture() { foreign_.reset(); }

  /// Notes an operand that is not flagos'.
  void note_foreign(const at::Tensor& tensor) {
    if (C10_UNLIKELY(is_vendor(tensor))) {
      foreign_ = tensor.device();
    }
  }

  /// Carries changed geometry and replaced storages over to the originals.
  void finish();

  /// Returns a vendor result as flagos' own: the original where it is an alias of one, a tensor on that original's
  /// storage where it is a view of it. Results of other layouts become flagos' own by their parts.
  at::Tensor take(at::Tensor result);

  /// Returns the flagos storage for a vendor storage: the one that was lent, or a new facade.
  c10::Storage take(const c10::Storage& vendor) { return take_storage(vendor.unsafeGetStorageImpl()); }

 private:
  struct Operand {
    at::Tensor original;
    at::Tensor alias;
    /// The alias' storage when it was lent, to be compared only.
    c10::StorageImpl* vendor;
  };
  /// What lies behind what, as it was when lent. Both are kept: a kernel may put another storage under an operand.
  struct StoragePair {
    c10::Storage flagos;
    c10::Storage vendor;
  };

  c10::Storage lend_storage(c10::StorageImpl* storage);
  void note_storage(c10::Storage flagos, c10::Storage vendor);
  c10::Storage take_storage(c10::StorageImpl* vendor);
  at::Tensor take_shared(at::Tensor result);

  c10::SmallVector<Operand, 4> operands_;
  c10::SmallVector<StoragePair, 4> storages_;
  PointerIndex originals_;
  PointerIndex flagos_storages_;
  std::optional<c10::Device> foreign_;
  Writes writes_;
};

}  // namespace flagos
