#pragma once

#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <cstddef>
#include <memory>
#include <optional>

namespace flagos {

/// Positions of pointers, in the order they were added; of equal ones, the first counts. Most operators have a handful
/// of operands, which a scan finds fastest; optimizers pass lists of thousands, for which a table is kept.
class PointerIndex final {
 public:
  std::optional<size_t> find(const void* pointer) const {
    if (table_) {
      const auto found = table_->find(pointer);
      return found == table_->end() ? std::nullopt : std::optional<size_t>(found->second);
    }
    for (size_t i = 0; i < pointers_.size(); ++i) {
      if (pointers_[i] == pointer) {
        return i;
      }
    }
    return std::nullopt;
  }

  void add(const void* pointer) {
    pointers_.push_back(pointer);
    if (table_) {
      table_->emplace(pointer, pointers_.size() - 1);
    } else if (pointers_.size() > kScanned) {
      table_ = std::make_unique<ska::flat_hash_map<const void*, size_t>>();
      for (size_t i = 0; i < pointers_.size(); ++i) {
        table_->emplace(pointers_[i], i);
      }
    }
  }

 private:
  static constexpr size_t kScanned = 64;

  c10::SmallVector<const void*, 4> pointers_;
  std::unique_ptr<ska::flat_hash_map<const void*, size_t>> table_;
};

}  // namespace flagos
