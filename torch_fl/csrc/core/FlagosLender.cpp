#include "core/FlagosLender.h"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <new>
#include <utility>

#include "core/FlagosErrors.h"

namespace flagos {

FLAGOS_FLATTEN bool take_fresh(at::Tensor& result) {
  if (C10_LIKELY(is_dense_vendor(result) && storage_of(result) != nullptr && is_fresh(result))) {
    adopt_fresh(result);
    return true;
  }
  return !is_vendor(result);
}

FLAGOS_HOT const at::Tensor& Lender::lend(const at::Tensor& tensor, Access access) {
  if (!is_dense_flagos(tensor)) {
    return pass(tensor);
  }
  for (size_t i = 0; i < count_; ++i) {
    if (origins_[i].original->is_same(tensor)) {
      return access == Access::Read ? aliases_[i] : lend_again(i);
    }
  }
  return lend_next(tensor, access);
}

const at::Tensor& Lender::lend_element(const at::Tensor& tensor) {
  for (size_t i = 0; i < singles_; ++i) {
    if (origins_[i].original->is_same(tensor)) {
      return place(elements_ == Access::Read ? aliases_[i] : lend_again(i), origins_[i]);
    }
  }
  return is_dense_flagos(tensor) ? lend_next(tensor, elements_) : place(pass(tensor), {&tensor, nullptr, Access::Read});
}

at::TensorList Lender::lend_list(at::TensorList list) {
  const at::Tensor* first = begin_list();
  for (const at::Tensor& tensor : list) {
    if (C10_LIKELY(singles_ == 0 && is_dense_flagos(tensor))) {
      lend_next(tensor, elements_);
    } else {
      lend_element(tensor);
    }
  }
  return {first, list.size()};
}

FLAGOS_FLATTEN const at::Tensor& Lender::lend_next(const at::Tensor& tensor, Access access) {
  c10::StorageImpl* const storage = storage_of(tensor);
  c10::StorageImpl* const vendor = vendor_storage(*storage);
  if (C10_UNLIKELY(pool_ == nullptr)) {
    pool_ = &AliasPool::of_thread();
  }
  if (C10_UNLIKELY(vendor == nullptr || !pool_->has_alias(tensor, access))) {
    return lend_new(tensor, access);
  }
  auto* const alias = new (aliases_ + count_)
      at::Tensor(pool_->make(tensor, c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(vendor), access));
  origins_[count_++] = {&tensor, vendor, access};
  return *alias;
}

C10_NOINLINE const at::Tensor& Lender::lend_new(const at::Tensor& tensor, Access access) {
  c10::StorageImpl* const storage = storage_of(tensor);
  c10::StorageImpl* const vendor = vendor_storage(*storage);
  at::Tensor alias = make_alias(
      tensor, vendor != nullptr ? c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(vendor) : lend_foreign(storage),
      access);
  return place(alias, {&tensor, storage_of(alias), access});
}

const at::Tensor& Lender::place(const at::Tensor& alias, const Origin& origin) {
  origins_[count_] = origin;
  return *new (aliases_ + count_++) at::Tensor(alias);
}

const at::Tensor& Lender::lend_again(size_t position) {
  equip_version(*origins_[position].original->unsafeGetTensorImpl(), *aliases_[position].unsafeGetTensorImpl(),
                Access::Write);
  return aliases_[position];
}

const at::Tensor& Lender::pass(const at::Tensor& tensor) const {
  if (C10_UNLIKELY(is_vendor(tensor)) && !may_mix_) {
    const Origin* begin = origins_;
    const Origin* end = begin + count_;
    const Origin* lent = std::find_if(begin, end, [](const Origin& origin) { return origin.vendor != nullptr; });
    refuse_mixture(lent == end ? c10::Device(kFlagos) : lent->original->device(), tensor.device());
  }
  return tensor;
}

FLAGOS_FLATTEN void Lender::end() noexcept {
  for (size_t i = 0; i < count_; ++i) {
    if (origins_[i].vendor != nullptr) {
      pool_->take_back(aliases_[i], origins_[i].access);
    }
    aliases_[i].~Tensor();
  }
}

void Lender::take(at::Tensor* results, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (C10_UNLIKELY(!take_fresh(results[i]))) {
      take_shared(results, i);
    }
  }
}

c10::intrusive_ptr<c10::StorageImpl> Lender::lend_foreign(c10::StorageImpl* storage) const {
  for (size_t i = 0; i < count_; ++i) {
    if (origins_[i].vendor != nullptr && storage_of(*origins_[i].original) == storage) {
      return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(origins_[i].vendor);
    }
  }
  return borrow_storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
}

void Lender::follow(const at::Tensor& original, bool geometry) {
  for (size_t i = 0; i < count_; ++i) {
    if (origins_[i].vendor != nullptr && origins_[i].original->is_same(original)) {
      follow_vendor(*storage_of(original), *origins_[i].vendor);
      if (geometry) {
        follow_geometry(original, aliases_[i]);
      }
      return;
    }
  }
}

void Lender::take_shared(at::Tensor* results, size_t position) {
  at::Tensor& result = results[position];
  for (size_t i = 0; i < count_; ++i) {
    if (aliases_[i].is_same(result)) {
      result = *origins_[i].original;
      return;
    }
  }
  check_layout(result);
  c10::Storage storage = storage_for(storage_of(result), results, position);
  result = adopt(std::move(result), std::move(storage));
}

c10::Storage Lender::storage_for(c10::StorageImpl* vendor, const at::Tensor* earlier, size_t count) const {
  for (size_t i = 0; i < count_; ++i) {
    if (origins_[i].vendor == vendor) {
      return origins_[i].original->storage();
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (is_flagos(earlier[i]) && vendor_storage(*storage_of(earlier[i])) == vendor) {
      return earlier[i].storage();
    }
  }
  return make_facade(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(vendor));
}

at::TensorList lend_scattered(Lender& lender, const at::ITensorListRef& list) {
  const at::Tensor* first = lender.begin_list();
  for (const at::Tensor& tensor : list) {
    lender.lend_element(tensor);
  }
  return {first, list.size()};
}

c10::List<std::optional<at::Tensor>> lend_optionals(Lender& lender, const c10::List<std::optional<at::Tensor>>& list) {
  c10::List<std::optional<at::Tensor>> lent;
  lent.reserve(list.size());
  lender.begin_list();
  // The list gives its elements by value, its IValues by reference: what is lent must be the caller's, which outlives
  // the call.
  const c10::IValue elements(list);
  for (const c10::IValue& element : elements.toListRef()) {
    lent.push_back(element.isTensor() ? std::optional<at::Tensor>(lender.lend_element(element.toTensor()))
                                      : std::nullopt);
  }
  return lent;
}

}  // namespace flagos
