#include "core/FlagosErrors.h"

#include <c10/core/DeviceType.h>

#include <cctype>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "core/FlagosDevice.h"

namespace flagos {

namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Whether the `length` characters at `start` name a device: a word of its own, followed by an index or a quote.
bool names_device(std::string_view text, size_t start, size_t length) {
  if (start > 0 && is_word(text[start - 1])) {
    return false;
  }
  const std::string_view rest = text.substr(start + length);
  return (rest.size() > 1 && rest[0] == ':' && std::isdigit(static_cast<unsigned char>(rest[1])) != 0) ||
         (!rest.empty() && rest[0] == '\'');
}

/// An error about both device types: a class of its own, so that throw_in_own_words() leaves its text.
struct MixtureError final : c10::Error {
  using c10::Error::Error;
};

}  // namespace

std::string in_own_words(const std::string& text) {
  const std::string theirs = c10::DeviceTypeName(kVendor, /*lower_case=*/true);
  const std::string ours = c10::DeviceTypeName(kFlagos, /*lower_case=*/true);
  std::string result;
  size_t copied = 0;
  for (size_t at = text.find(theirs); at != std::string::npos; at = text.find(theirs, at + theirs.size())) {
    if (names_device(text, at, theirs.size())) {
      result.append(text, copied, at - copied).append(ours);
      copied = at + theirs.size();
    }
  }
  return result.append(text, copied, std::string::npos);
}

void throw_in_own_words(const c10::Error& error) {
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

void refuse_mixture(c10::Device flagos, c10::Device vendor) {
  throw MixtureError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      c10::str("Expected all tensors to be on the same device, but found at least two devices, ", flagos, " and ",
               vendor, "! (torch.flagos.from_vendor makes a flagos tensor of the other's memory)"));
}

}  // namespace flagos
