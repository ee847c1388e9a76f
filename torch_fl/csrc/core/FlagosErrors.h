#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "core/FlagosMacros.h"

namespace flagos {

/// Returns an error text with the vendor's devices ("cuda:0", "'cuda' device") under the names the user gave them.
FLAGOS_API std::string in_own_words(const std::string& text);

/// Called while `error` is handled: throws it on, with its text in_own_words().
[[noreturn]] FLAGOS_API void throw_in_own_words(const c10::Error& error);

/// Runs a vendor kernel; what it says of devices when it throws is said of flagos. Types and other texts stay.
template <typename Kernel>
decltype(auto) with_own_words(Kernel&& kernel) {
  try {
    return std::forward<Kernel>(kernel)();
  } catch (const c10::Error& error) {
    throw_in_own_words(error);
  }
}

}  // namespace flagos
