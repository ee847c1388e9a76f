#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/FlagosAlias.h"
#include "core/FlagosAliasPool.h"
#include "core/FlagosDevice.h"
#include "core/FlagosGenerator.h"
#include "core/FlagosStorage.h"

namespace flagos {

/// Where a lent operand came from. `original` is the caller's and outlives the call; `vendor` is the storage that was
/// behind its own, null for what is not flagos'. `access` is what the alias was made for.
struct Origin {
  const at::Tensor* original;
  c10::StorageImpl* vendor;
  Access access;
};

/// Makes `result` flagos' own if that takes no search: if it is_fresh(), or no vendor's at all. Returns whether.
bool take_fresh(at::Tensor& result);

/// The operands of one call that are lent to the vendor: `aliases[i]` stands for `*origins[i].original`. The arrays are
/// the caller's, who knows how many operands there may be; they hold nothing but what the lender constructs in them,
/// and destroys.
class Lender final {
 public:
  /// Operands on the vendor's own device type are refused unless `may_mix`; `elements` is what is done to lists.
  Lender(at::Tensor* aliases, Origin* origins, bool may_mix, Access elements)
      : aliases_(aliases), origins_(origins), may_mix_(may_mix), elements_(elements) {}
  ~Lender() {
    if (count_ != 0) {
      end();
    }
  }
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  /// Returns the vendor's view of `tensor`, or `tensor` itself where it is not flagos'. One tensor that occurs twice is
  /// lent once: kernels compare operands by identity.
  // Not inline: it would be repeated for every operand of every hot operator, for a nanosecond each.
  const at::Tensor& lend(const at::Tensor& tensor, Access access = Access::Read);

  /// Lends the elements of a list, and returns the list of their aliases.
  at::TensorList lend_list(at::TensorList list);

  /// Lends the element of a list. Only operands lent before the first list are looked through, such as an out= tensor,
  /// which kernels compare with the elements; elements are not compared with each other, and lists may be long.
  const at::Tensor& lend_element(const at::Tensor& tensor);

  /// Says that list elements follow, and returns where their aliases will be.
  const at::Tensor* begin_list() {
    singles_ = std::min(singles_, count_);
    return aliases_ + count_;
  }

  /// Takes `count` results, in place; see VendorCall::take.
  void take(at::Tensor* results, size_t count);
  /// The same for one of them, which take_fresh() left; those before it are taken.
  void take_shared(at::Tensor* results, size_t position);

  /// Carries what the kernel did to `original`, an operand that it may write to, over to it. With `geometry` false, as
  /// after an exception, only the storage follows: the memory may have moved before the kernel failed.
  void follow(const at::Tensor& original, bool geometry);

 private:
  /// Returns `tensor`, which is no dense tensor of flagos, as it is; or throws c10::Error if it must not be here.
  const at::Tensor& pass(const at::Tensor& tensor) const;
  /// Lends a dense tensor of flagos that was not looked for, or not found, among those before.
  const at::Tensor& lend_next(const at::Tensor& tensor, Access access);
  /// The same where the pool has nothing for it.
  const at::Tensor& lend_new(const at::Tensor& tensor, Access access);
  /// Returns the alias of an operand that is written to also, where it was lent to be read at least.
  const at::Tensor& lend_again(size_t position);
  /// Puts an element that has an alias already, or needs none, into the next place.
  const at::Tensor& place(const at::Tensor& alias, const Origin& origin);
  c10::intrusive_ptr<c10::StorageImpl> lend_foreign(c10::StorageImpl* storage) const;
  void end() noexcept;
  c10::Storage storage_for(c10::StorageImpl* vendor, const at::Tensor* earlier, size_t count) const;

  at::Tensor* aliases_;
  Origin* origins_;
  bool may_mix_;
  Access elements_;
  /// Null until there is something to lend.
  AliasPool* pool_ = nullptr;
  size_t count_ = 0;
  /// How many operands come before the first list; without a limit until there is one.
  size_t singles_ = SIZE_MAX;
};

/// Lends the elements of a list of optional operands.
c10::List<std::optional<at::Tensor>> lend_optionals(Lender& lender, const c10::List<std::optional<at::Tensor>>& list);

// Argument<T>: how an argument of type T, as at::_ops declares it, is lent.
//   places(value)  how many operands it is
//   lend(...)      something that converts to T
//   kWritten       whether the operator writes to it

/// Most types pass through.
template <typename T>
struct Argument {
  static constexpr bool kWritten = false;
  static constexpr size_t kPlaces = 0;
  static size_t places(const std::decay_t<T>& /*value*/) { return 0; }
  template <typename Value>
  static Value&& lend(Lender& /*lender*/, Value&& value) {
    return std::forward<Value>(value);
  }
};

struct OneOperand {
  static constexpr bool kWritten = false;
  static constexpr size_t kPlaces = 1;
  template <typename Value>
  static size_t places(const Value& /*value*/) {
    return 1;
  }
};

template <>
struct Argument<const at::Tensor&> : OneOperand {
  static const at::Tensor& lend(Lender& lender, const at::Tensor& value) { return lender.lend(value); }
};

template <>
struct Argument<at::Tensor&> : OneOperand {
  static constexpr bool kWritten = true;
  static at::Tensor& lend(Lender& lender, at::Tensor& value) {
    return const_cast<at::Tensor&>(lender.lend(value, Access::Write));
  }
};

/// An optional operand, as kernels take it, without a reference of its own: the lender's outlives the call, and kernels
/// cannot put another tensor into what is const to them. To count it up and down again takes two atomic operations.
class LentOptional final {
 public:
  LentOptional() = default;
  explicit LentOptional(const at::Tensor& lent) : value_(Borrow::createBorrow(lent)) {}
  ~LentOptional() {
    if (value_) {
      Borrow::destroyBorrow(*value_);
    }
  }
  LentOptional(const LentOptional&) = delete;
  LentOptional& operator=(const LentOptional&) = delete;
  operator const std::optional<at::Tensor>&() const { return value_; }

 private:
  using Borrow = c10::MaybeOwnedTraits<at::Tensor>;
  std::optional<at::Tensor> value_;
};

template <>
struct Argument<const std::optional<at::Tensor>&> : OneOperand {
  static LentOptional lend(Lender& lender, const std::optional<at::Tensor>& value) {
    return value ? LentOptional(lender.lend(*value)) : LentOptional();
  }
};

/// Number of operands known only when called.
constexpr size_t kAnyNumber = 1000;

struct ManyOperands {
  static constexpr bool kWritten = false;
  static constexpr size_t kPlaces = kAnyNumber;
  template <typename List>
  static size_t places(const List& list) {
    return list.size();
  }
};

/// Lends the elements of a list that is none of tensors side by side.
at::TensorList lend_scattered(Lender& lender, const at::ITensorListRef& list);

template <>
struct Argument<at::TensorList> : ManyOperands {
  static at::TensorList lend(Lender& lender, at::TensorList list) { return lender.lend_list(list); }
};

template <>
struct Argument<const at::ITensorListRef&> : ManyOperands {
  static at::ITensorListRef lend(Lender& lender, const at::ITensorListRef& list) {
    return C10_LIKELY(list.isUnboxed()) ? lender.lend_list(list.toUnboxed()) : lend_scattered(lender, list);
  }
};

template <>
struct Argument<const c10::List<std::optional<at::Tensor>>&> : ManyOperands {
  static c10::List<std::optional<at::Tensor>> lend(Lender& lender, const c10::List<std::optional<at::Tensor>>& list) {
    return lend_optionals(lender, list);
  }
};

template <>
struct Argument<std::optional<at::Generator>> {
  static constexpr bool kWritten = false;
  static constexpr size_t kPlaces = 0;
  static size_t places(const std::optional<at::Generator>& /*value*/) { return 0; }
  static std::optional<at::Generator> lend(Lender& /*lender*/, const std::optional<at::Generator>& value) {
    return value ? std::optional<at::Generator>(vendor_generator(*value)) : std::nullopt;
  }
};

template <>
struct Argument<std::optional<at::Device>> {
  static constexpr bool kWritten = false;
  static constexpr size_t kPlaces = 0;
  static size_t places(const std::optional<at::Device>& /*value*/) { return 0; }
  static std::optional<at::Device> lend(Lender& /*lender*/, const std::optional<at::Device>& value) {
    return value ? std::optional<at::Device>(lend_device(*value)) : std::nullopt;
  }
};

}  // namespace flagos
