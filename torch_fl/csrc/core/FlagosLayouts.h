#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

#include <array>
#include <utility>
#include <vector>

#include "core/FlagosCall.h"

namespace flagos {

/// Layouts other than dense: sparse (COO), compressed sparse (CSR, CSC, BSR, BSC), nested with a strided layout, and
/// quantized, of which flagos has none. Nested tensors of layout jagged are Python objects over dense tensors and need
/// nothing here.
inline constexpr c10::DispatchKeySet kSpecialLayouts({c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                                                      c10::DispatchKey::NestedTensor, c10::DispatchKey::Quantized});

inline bool has_layout(const at::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has_any(kSpecialLayouts);
}

/// One operator call with operands of such layouts: what a VendorCall does for dense ones, whose work it uses for their
/// parts.
///
/// An operand is lent as a tensor of the same class whose parts (indices and values, or the storage) are lent. Results
/// are taken the same way back; after an operator that writes, so are the operands' parts and sizes.
class LayoutCall final {
 public:
  explicit LayoutCall(VendorCall& call) : call_(call) {}

  /// Returns an operand in the vendor's terms; dense ones, and what is not flagos', pass through unchanged.
  at::Tensor lend(at::Tensor original);

  /// Carries over to the originals what the kernel did to their parts. After VendorCall::finish().
  void finish();

  /// Returns a vendor result as flagos' own.
  at::Tensor take(at::Tensor result);

 private:
  struct Operand {
    at::Tensor original;
    at::Tensor alias;
  };
  struct StoragePair {
    c10::Storage flagos;
    c10::Storage vendor;
  };

  VendorCall& call_;
  std::vector<Operand> operands_;
  std::vector<StoragePair> storages_;
};

/// Returns a vendor result of such a layout as flagos' own. Throws c10::Error for a quantized tensor, and for one
/// without storage of any other kind.
at::Tensor take_layout(VendorCall& call, at::Tensor result);

/// Runs an operator on the vendor's kernel for `vendor`, one of the keys of kLayoutKeys.
template <c10::DispatchKey vendor>
void run_layout_on_vendor(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// A kernel that a registry is to add.
struct LayoutKernel {
  c10::OperatorName name;
  c10::DispatchKey key;
  c10::KernelFunction kernel;
};

/// Returns the boxed kernel for every operator that the vendor has a kernel for in one of these layouts.
std::vector<LayoutKernel> layout_kernels();

/// The keys under which flagos has kernels for these layouts.
inline constexpr std::array kLayoutKeys = {c10::DispatchKey::SparsePrivateUse1, c10::DispatchKey::SparseCsrPrivateUse1,
                                           c10::DispatchKey::NestedTensorPrivateUse1};

}  // namespace flagos
