#pragma once

#include <c10/core/Device.h>
#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "core/FlagosMacros.h"

namespace flagos {

/// Returns an error text with the vendor's devices ("cuda:0", "'cuda' device") under the names the user gave them.
FLAGOS_API std::string in_own_words(const std::string& text);

/// Called while `error` is handled: throws it on, with its text in_own_words().
[[noreturn]] FLAGOS_API void throw_in_own_words(const c10::Error& error);

/// Throws PyTorch's error for operands on more than one device: one of flagos, and one on the vendor's own device type.
/// Which device of flagos is not always known when the other is met; `flagos` has no index then.
[[noreturn]] FLAGOS_API void refuse_mixture(c10::Device flagos, c10::Device vendor);

/// Runs a vendor kernel; what it says of devices when it throws is said of flagos. Types and other texts stay.
///
/// Inline, so that a kernel's arguments stay in registers on their way through.
template <typename Kernel>
C10_ALWAYS_INLINE decltype(auto) with_own_words(Kernel&& kernel) {
  try {
    return std::forward<Kernel>(kernel)();
  } catch (const c10::Error& error) {
    throw_in_own_words(error);
  }
}

}  // namespace flagos
