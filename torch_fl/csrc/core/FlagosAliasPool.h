#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <cstddef>
#include <typeinfo>
#include <utility>
#include <vector>

#include "core/FlagosAlias.h"

namespace flagos {

/// Aliases that a thread has at hand for its operator calls. To allocate, construct, destroy and free one costs three
/// times what it takes to fill it in, and a call needs one per operand, a list of parameters hundreds.
///
/// An alias comes back only if nobody else holds it, so that nobody can see it become another tensor's: one that a
/// vendor's kernel keeps goes its own way. It holds no memory while it waits. Those that were written to wait apart,
/// without a version counter; the others keep theirs, unless a kernel kept something that shares it.
class AliasPool final {
 public:
  /// Keeps up to `limit` aliases of operands that were read, and as many of those that were written to.
  explicit AliasPool(size_t limit);
  AliasPool(const AliasPool&) = delete;
  AliasPool& operator=(const AliasPool&) = delete;

  /// The calling thread's pool. Once the thread's own objects are gone, it is one that is empty and stays so.
  static AliasPool& of_thread();

  /// Whether there is an alias at hand that may become `tensor`'s; otherwise make_alias() has to make one.
  bool has_alias(const at::Tensor& tensor, Access access) {
    return C10_LIKELY(!of(access).empty() && !ImplAccess::has_extra_meta(*tensor.unsafeGetTensorImpl()));
  }

  /// As make_alias(); has_alias() must hold.
  C10_ALWAYS_INLINE at::Tensor make(const at::Tensor& tensor, c10::Storage&& storage, Access access) {
    Kept& kept = of(access);
    at::Tensor alias = std::move(kept.back());
    kept.pop_back();
    c10::TensorImpl& impl = *alias.unsafeGetTensorImpl();
    ImplAccess::storage(impl) = std::move(storage);
    equip_alias(*tensor.unsafeGetTensorImpl(), impl, access);
    return alias;
  }

  /// Ends the caller's hold on `alias`, which was made for the same access; the call is over.
  C10_ALWAYS_INLINE void take_back(at::Tensor& alias, Access access) noexcept {
    c10::TensorImpl& impl = *alias.unsafeGetTensorImpl();
    Kept& kept = of(access);
    // A kernel may even have put another tensor into the place of an operand that it writes to. Types are compared by
    // their addresses, which are one in a process: by their names, as type_info does, more memory is looked at.
    if (C10_UNLIKELY(kept.size() == limit_ || !alias.getIntrusivePtr().is_uniquely_owned() ||
                     &typeid(impl) != &typeid(c10::TensorImpl) || !ImplAccess::is_bare(impl))) {
      return;
    }
    ImplAccess::storage(impl) = c10::Storage();
    c10::VariableVersion& version = ImplAccess::version(impl);
    if (access == Access::Write || C10_UNLIKELY(!version.unique())) {
      version = c10::VariableVersion();
    }
    kept.push_back(std::move(alias));
  }

 private:
  using Kept = std::vector<at::Tensor>;

  Kept& of(Access access) { return access == Access::Write ? written_ : read_; }
  static AliasPool& first_of_thread();

  size_t limit_;
  Kept read_;
  Kept written_;
};

}  // namespace flagos
