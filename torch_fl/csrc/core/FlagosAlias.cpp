#include "core/FlagosAlias.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

namespace flagos {

/// What the aliases of a block share: how many hold its memory, the AliasBlock itself being one of them.
struct AliasBlock::Shared {
  explicit Shared(size_t count) : holders(count) {}
  std::atomic<size_t> holders;
};

/// A plain TensorImpl, but for where its memory comes from.
struct BlockAlias final : c10::TensorImpl {
  using c10::TensorImpl::TensorImpl;
  static void operator delete(void* memory) noexcept;
};

/// The way back to the block stands before the alias, and outlives it.
struct AliasBlock::Place {
  Shared* shared;
  alignas(BlockAlias) std::byte alias[sizeof(BlockAlias)];
};

void BlockAlias::operator delete(void* memory) noexcept {
  auto* place =
      reinterpret_cast<AliasBlock::Place*>(static_cast<std::byte*>(memory) - offsetof(AliasBlock::Place, alias));
  AliasBlock::drop(place->shared, 1);
}

AliasBlock::AliasBlock(size_t count) : count_(count) {
  static_assert(sizeof(Shared) % alignof(Place) == 0 && alignof(Place) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  shared_ = ::new (::operator new(sizeof(Shared) + count * sizeof(Place))) Shared(count + 1);
}

AliasBlock::~AliasBlock() { drop(shared_, count_ - made_ + 1); }

at::Tensor AliasBlock::make(const at::Tensor& tensor, c10::Storage storage) {
  if (C10_UNLIKELY(made_ == count_)) {
    return make_alias(tensor, std::move(storage));
  }
  const c10::TensorImpl& from = *tensor.unsafeGetTensorImpl();
  Place& place = *::new (reinterpret_cast<Place*>(shared_ + 1) + made_) Place;
  place.shared = shared_;
  auto* impl = ::new (static_cast<void*>(place.alias))
      BlockAlias(c10::TensorImpl::VIEW, std::move(storage), kVendorKeys, from.dtype());
  ++made_;
  auto alias = c10::intrusive_ptr<c10::TensorImpl>::unsafe_steal_from_new(impl);
  equip_alias(from, *alias);
  return at::Tensor(std::move(alias));
}

void AliasBlock::drop(Shared* shared, size_t holders) noexcept {
  if (shared->holders.fetch_sub(holders, std::memory_order_acq_rel) == holders) {
    shared->~Shared();
    ::operator delete(shared);
  }
}

namespace {

bool same_geometry(const c10::TensorImpl& left, const c10::TensorImpl& right) {
  return left.sizes().equals(right.sizes()) && left.strides().equals(right.strides()) &&
         left.storage_offset() == right.storage_offset();
}

void retarget(c10::TensorImpl& impl) {
  ImplAccess::keys(impl) = flagos_keys(impl.key_set());
  ImplAccess::device(impl) = flagos_device(*ImplAccess::device(impl));
}

}  // namespace

at::Tensor adopt(at::Tensor result, c10::Storage storage) {
  if (result.use_count() == 1) {
    c10::TensorImpl& impl = *result.unsafeGetTensorImpl();
    ImplAccess::storage(impl) = std::move(storage);
    retarget(impl);
    return result;
  }
  const c10::TensorImpl& from = *result.unsafeGetTensorImpl();
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), from.key_set(), from.dtype());
  ImplAccess::copy_metadata(from, *impl);
  ImplAccess::keys(*impl) = from.key_set();
  ImplAccess::device(*impl) = from.device();
  retarget(*impl);
  return at::Tensor(std::move(impl));
}

void replace_storage(const at::Tensor& tensor, c10::Storage storage) {
  ImplAccess::storage(*tensor.unsafeGetTensorImpl()) = std::move(storage);
}

void follow_geometry(const at::Tensor& original, const at::Tensor& alias) {
  c10::TensorImpl& to = *original.unsafeGetTensorImpl();
  const c10::TensorImpl& from = *alias.unsafeGetTensorImpl();
  if (C10_UNLIKELY(!same_geometry(to, from))) {
    to.set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
  }
}

void check_layout(const at::Tensor& result) {
  TORCH_CHECK_NOT_IMPLEMENTED(is_dense_vendor(result) && result.has_storage(),
                              "flagos: an operator returned a tensor of layout ", result.layout(), " and key set ",
                              toString(result.key_set()),
                              "; flagos has dense tensors only, move the operands to the CPU first");
}

}  // namespace flagos
