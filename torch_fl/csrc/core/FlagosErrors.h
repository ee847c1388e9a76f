#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <typeinfo>
#include <utility>

#include "core/FlagosMacros.h"

namespace flagos {

/// Returns an error text with the vendor's devices ("cuda:0", "'cuda' device") under the names the user gave them.
FLAGOS_API std::string in_own_words(const std::string& text);

/// Runs a vendor kernel; what it says of devices when it throws is said of flagos. Types and other texts stay.
template <typename Kernel>
decltype(auto) with_own_words(Kernel&& kernel) {
  try {
    return std::forward<Kernel>(kernel)();
  } catch (const c10::Error& error) {
    // Derived errors become Python exceptions by their type; none of them tells of devices.
    if (typeid(error) != typeid(c10::Error)) {
      throw;
    }
    std::string text = in_own_words(error.msg());
    if (text == error.msg()) {
      throw;
    }
    throw c10::Error(std::move(text), error.backtrace());
  }
}

}  // namespace flagos
