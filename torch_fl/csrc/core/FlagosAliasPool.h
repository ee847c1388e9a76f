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
/// vendor's kernel keeps goes its own way. It holds no memory while it waits.
class AliasPool final {
 public:
  /// Keeps up to `limit` aliases.
  explicit AliasPool(size_t limit) : limit_(limit), kept_(new c10::TensorImpl*[limit]) {}
  ~AliasPool();
  AliasPool(const AliasPool&) = delete;
  AliasPool& operator=(const AliasPool&) = delete;

  /// The calling thread's pool. Once the thread's own objects are gone, it is one that is empty and stays so.
  static AliasPool& of_thread();

  /// As make_alias(), into `alias`, which is undefined.
  void make(const at::Tensor& tensor, c10::Storage&& storage, at::Tensor& alias) {
    const c10::TensorImpl& from = *tensor.unsafeGetTensorImpl();
    if (C10_UNLIKELY(count_ == 0 || ImplAccess::has_extra_meta(from))) {
      alias = make_alias(tensor, std::move(storage));
      return;
    }
    alias = at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(kept_[--count_]));
    c10::TensorImpl& impl = *alias.unsafeGetTensorImpl();
    ImplAccess::storage(impl) = std::move(storage);
    equip_alias(from, impl);
  }

  /// Ends the caller's hold on `alias`, which make() returned; the call is over.
  void take_back(at::Tensor& alias) noexcept {
    c10::TensorImpl& impl = *alias.unsafeGetTensorImpl();
    // A kernel may even have put another tensor into the place of an operand that it writes to.
    if (C10_UNLIKELY(count_ == limit_ || !alias.getIntrusivePtr().is_uniquely_owned() ||
                     typeid(impl) != typeid(c10::TensorImpl) || !ImplAccess::is_bare(impl))) {
      alias.reset();
      return;
    }
    ImplAccess::storage(impl) = c10::Storage();
    ImplAccess::version(impl) = c10::VariableVersion();
    kept_[count_++] = alias.unsafeReleaseTensorImpl();
  }

 private:
  size_t count_ = 0;
  size_t limit_;
  std::unique_ptr<c10::TensorImpl*[]> kept_;
};

}  // namespace flagos
