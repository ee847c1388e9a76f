#pragma once

#include <ATen/core/Tensor.h>

namespace flagos {

/// While it lives, the calling thread wants the first result alone of the next hot operator that is called with
/// `operand` itself as its first one. The kernel then leaves the other results as the vendor made them, for the caller
/// to drop: to make one flagos' own and to free it again costs as much as another operand.
///
/// The operand is known by the address of its reference. Whatever takes the call's place on the way, such as a mode or
/// a kernel of the user's, and calls the operator for itself hands it another reference, and gets all results.
class FirstResultOnly final {
 public:
  explicit FirstResultOnly(const at::Tensor& operand) noexcept;
  ~FirstResultOnly();
  FirstResultOnly(const FirstResultOnly&) = delete;
  FirstResultOnly& operator=(const FirstResultOnly&) = delete;

  /// Whether that is what the caller wants. It is so once: calls within the call are not meant.
  static bool is_wanted_of(const at::Tensor& operand) noexcept;
};

}  // namespace flagos
