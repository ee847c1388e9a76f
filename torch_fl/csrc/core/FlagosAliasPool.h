#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <cstddef>
#include <memory>
#include <typeinfo>
#include <utility>

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
  explicit AliasPool(size_t limit) : read_(limit), written_(limit) {}
  AliasPool(const AliasPool&) = delete;
  AliasPool& operator=(const AliasPool&) = delete;

  /// The calling thread's pool. Once the thread's own objects are gone, it is one that is empty and stays so.
  static AliasPool& of_thread();

  /// As make_alias(), into `alias`, which is undefined.
  C10_ALWAYS_INLINE void make(const at::Tensor& tensor, c10::Storage&& storage, at::Tensor& alias, Access access) {
    const c10::TensorImpl& from = *tensor.unsafeGetTensorImpl();
    Kept& kept = of(access);
    if (C10_UNLIKELY(kept.count == 0 || ImplAccess::has_extra_meta(from))) {
      alias = make_alias(tensor, std::move(storage), access);
      return;
    }
    alias =
        at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(kept.impls[--kept.count]));
    c10::TensorImpl& impl = *alias.unsafeGetTensorImpl();
    ImplAccess::storage(impl) = std::move(storage);
    equip_alias(from, impl, access);
  }

  /// Ends the caller's hold on `alias`, which make() returned for the same access; the call is over.
  C10_ALWAYS_INLINE void take_back(at::Tensor& alias, Access access) noexcept {
    c10::TensorImpl& impl = *alias.unsafeGetTensorImpl();
    Kept& kept = of(access);
    // A kernel may even have put another tensor into the place of an operand that it writes to.
    if (C10_UNLIKELY(kept.count == kept.limit || !alias.getIntrusivePtr().is_uniquely_owned() ||
                     typeid(impl) != typeid(c10::TensorImpl) || !ImplAccess::is_bare(impl))) {
      alias.reset();
      return;
    }
    ImplAccess::storage(impl) = c10::Storage();
    c10::VariableVersion& version = ImplAccess::version(impl);
    if (access == Access::Write || C10_UNLIKELY(!version.unique())) {
      version = c10::VariableVersion();
    }
    kept.impls[kept.count++] = alias.unsafeReleaseTensorImpl();
  }

 private:
  struct Kept {
    explicit Kept(size_t most) : limit(most), impls(new c10::TensorImpl*[most]) {}
    ~Kept();
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;

    size_t count = 0;
    size_t limit;
    std::unique_ptr<c10::TensorImpl*[]> impls;
  };

  Kept& of(Access access) { return access == Access::Write ? written_ : read_; }

  Kept read_;
  Kept written_;
};

}  // namespace flagos
