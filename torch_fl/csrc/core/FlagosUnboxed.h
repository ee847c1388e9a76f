#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/ops/_foreach_copy_ops.h>
#include <ATen/ops/copy_ops.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/FlagosBoxed.h"
#include "core/FlagosErrors.h"
#include "core/FlagosLender.h"

namespace flagos {

/// Room for the operands of one call, empty: on the stack, except for long lists.
template <size_t kCount>
class Places final {
 public:
  explicit Places(size_t /*count*/) {}
  at::Tensor* aliases() { return reinterpret_cast<at::Tensor*>(aliases_.data()); }
  Origin* origins() { return origins_.data(); }

 private:
  alignas(at::Tensor) std::array<std::byte, kCount * sizeof(at::Tensor)> aliases_;
  std::array<Origin, kCount> origins_;
};

class ListPlaces final {
 public:
  explicit ListPlaces(size_t count)
      : many_(count > kFew ? new std::byte[count * (sizeof(at::Tensor) + sizeof(Origin))] : nullptr), count_(count) {}
  at::Tensor* aliases() { return many_ == nullptr ? few_.aliases() : reinterpret_cast<at::Tensor*>(many_.get()); }
  Origin* origins() {
    return many_ == nullptr ? few_.origins() : reinterpret_cast<Origin*>(many_.get() + count_ * sizeof(at::Tensor));
  }

 private:
  static constexpr size_t kFew = 8;
  static_assert(sizeof(at::Tensor) % alignof(Origin) == 0 && alignof(Origin) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  std::unique_ptr<std::byte[]> many_;
  size_t count_;
  Places<kFew> few_{kFew};
};

/// Results that are values are taken from the vendor, in place; other types pass.
template <typename Other>
void take_results(Lender& /*lender*/, Other& /*result*/) {}
inline void take_results(Lender& lender, at::Tensor& result) {
  if (C10_UNLIKELY(!take_fresh(result))) {
    lender.take_shared(&result, 0);
  }
}
inline void take_results(Lender& lender, std::vector<at::Tensor>& results) {
  lender.take(results.data(), results.size());
}
template <typename Other>
bool take_fresh(Other& /*element*/) {
  return true;
}
inline at::Tensor release(at::Tensor& tensor) { return std::move(tensor); }
inline void restore(at::Tensor& tensor, at::Tensor& taken) { tensor = std::move(taken); }
template <typename Other>
at::Tensor release(Other& /*element*/) {
  return {};
}
template <typename Other>
void restore(Other& /*element*/, at::Tensor& /*taken*/) {}

/// Those that may share memory are taken together.
template <typename... Elements>
C10_NOINLINE void take_together(Lender& lender, Elements&... elements) {
  std::array<at::Tensor, sizeof...(Elements)> all{release(elements)...};
  lender.take(all.data(), all.size());
  size_t i = 0;
  (restore(elements, all[i++]), ...);
}

template <typename... Elements>
void take_results(Lender& lender, std::tuple<Elements...>& results) {
  std::apply(
      [&](Elements&... elements) {
        // All of them: what is fresh shares nothing with those that are not, so that it may be taken before.
        if (C10_UNLIKELY(!(static_cast<unsigned>(take_fresh(elements)) & ...))) {
          take_together(lender, elements...);
        }
      },
      results);
}

/// Copies are what operands on two devices are for.
template <typename Op>
constexpr bool kMayMix = std::is_same_v<Op, at::_ops::copy_> || std::is_same_v<Op, at::_ops::_foreach_copy_>;

/// Autograd leaves it to the kernels of operators on lists to count up the versions of what they write to, so that all
/// elements of such an operator share their originals' counters; its schema says which operator that is.
template <typename Op>
constexpr Access kElements =
    std::string_view(Op::schema_str).find("!)[]") == std::string_view::npos ? Access::Read : Access::Write;

/// Unboxed<at::_ops::X>::run is a flagos kernel of the operator X. It does what run_on_vendor() does, compiled for the
/// types of this operator's arguments: nothing is packed into IValues, and no type is looked at when it runs. Over the
/// vendor's own call it costs one TensorImpl for each operand, and one StorageImpl for each new result.
///
/// An operator qualifies if it writes to its operands by `Tensor&` arguments only, apart from list elements, whose
/// geometry it leaves, and puts no other storage under them.
template <typename Op, typename Schema = typename Op::schema>
struct Unboxed;

template <typename Op, typename Result, typename... Arguments>
struct Unboxed<Op, Result(Arguments...)> final {
  static Result run(Arguments... arguments) {
    constexpr size_t kPlaces = (Argument<Arguments>::kPlaces + ... + 0);
    using Room = std::conditional_t<(kPlaces < kAnyNumber), Places<kPlaces>, ListPlaces>;
    Room room((Argument<Arguments>::places(arguments) + ... + 0));
    Lender lender(room.aliases(), room.origins(), kMayMix<Op>, kElements<Op>);
    ensure_vendor_ready();
    const auto call = [&]() C10_ALWAYS_INLINE_ATTRIBUTE -> decltype(auto) {
      return with_own_words([&]() C10_ALWAYS_INLINE_ATTRIBUTE -> decltype(auto) {
        return Op::redispatch(kVendorKeys, Argument<Arguments>::lend(lender, std::forward<Arguments>(arguments))...);
      });
    };
    if constexpr (!(Argument<Arguments>::kWritten || ...)) {
      if constexpr (std::is_void_v<Result>) {
        call();
      } else {
        static_assert(!std::is_reference_v<Result>, "such an operator returns what it was given");
        Result result = call();
        take_results(lender, result);
        return result;
      }
    } else {
      try {
        call();
      } catch (...) {
        (follow<Arguments>(lender, arguments, /*geometry=*/false), ...);
        throw;
      }
      (follow<Arguments>(lender, arguments, /*geometry=*/true), ...);
      return written<Result>(std::tuple_cat(reference<Arguments>(arguments)...));
    }
  }

 private:
  template <typename T, typename Value>
  static void follow(Lender& lender, const Value& value, bool geometry) {
    if constexpr (Argument<T>::kWritten) {
      lender.follow(value, geometry);
    }
  }

  template <typename T, typename Value>
  static auto reference(Value& value) {
    if constexpr (Argument<T>::kWritten) {
      return std::tuple<at::Tensor&>(value);
    } else {
      return std::tuple<>();
    }
  }

  /// Such an operator returns what it was given to write to, in that order; or the first of it.
  template <typename Return, typename References>
  static Return written(References references) {
    if constexpr (std::is_same_v<Return, at::Tensor&>) {
      return std::get<0>(references);
    } else if constexpr (!std::is_void_v<Return>) {
      static_assert(std::is_same_v<Return, References>);
      return references;
    }
  }
};

/// The same as a functor, which the dispatcher wants for kernels with a boxed side.
template <typename Op, typename Schema = typename Op::schema>
struct UnboxedFunctor;

template <typename Op, typename Result, typename... Arguments>
struct UnboxedFunctor<Op, Result(Arguments...)> final : c10::OperatorKernel {
  Result operator()(Arguments... arguments) { return Unboxed<Op>::run(std::forward<Arguments>(arguments)...); }
};

/// Returns the kernel for the dispatcher: callers with an IValue stack go to run_on_vendor() at once.
template <typename Op>
c10::KernelFunction make_unboxed() {
  return c10::KernelFunction::makeFromUnboxedFunctor<false, UnboxedFunctor<Op>>(std::make_unique<UnboxedFunctor<Op>>());
}

}  // namespace flagos

namespace c10::impl {

/// The dispatcher's own adapter would unpack the stack for each operator by code of its own, several times the size of
/// the kernel, only for the kernel to do what run_on_vendor() does on the stack itself.
template <typename Op, typename Schema>
struct make_boxed_from_unboxed_functor<flagos::UnboxedFunctor<Op, Schema>, false> final {
  static void call(OperatorKernel* /*functor*/, const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    flagos::run_on_vendor(op, keys, stack);
  }
};

}  // namespace c10::impl
