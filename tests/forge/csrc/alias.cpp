#include "alias.h"

#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <utility>

#include "layouts.h"

namespace software {
namespace {

// TensorImpl keeps its device and storage to itself and its subclasses; only the names are borrowed
// here.
struct Fields : c10::TensorImpl {
  static constexpr auto device = &Fields::device_opt_;
  static constexpr auto storage = &Fields::storage_;
};

void retarget(c10::TensorImpl* impl, c10::Device device) {
  impl->_change_backend_component_keys(device);
  impl->*Fields::device = device;
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

void drop_storage_reference(void* context) { c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(context)); }

void adopt_storage(c10::StorageImpl* storage, c10::Device device) {
  if (storage == nullptr || storage->device_type() == kSelf) return;
  const size_t bytes = storage->nbytes();
  auto memory = storage->set_data_ptr(c10::DataPtr(nullptr, device));
  storage->set_data_ptr_noswap(adopt_memory(std::move(memory), bytes, device.index()));
  storage->set_allocator(device_allocator());
}

bool same_geometry(const c10::TensorImpl* one, const c10::TensorImpl* other) {
  return one->sizes() == other->sizes() && one->strides() == other->strides() &&
         one->storage_offset() == other->storage_offset();
}

}  // namespace

c10::Storage Aliases::alias_storage(const c10::Storage& storage, bool written) {
  auto* impl = storage.unsafeGetStorageImpl();
  // A copy-on-write storage becomes a copy before anyone writes past the storage's own accessors.
  if (written) impl->mutable_data();
  for (const auto& known : storages_) {
    if (known.original.unsafeGetStorageImpl() == impl) return known.alias;
  }
  const c10::Device host(c10::DeviceType::CPU);
  c10::raw::intrusive_ptr::incref(impl);
  c10::DataPtr memory(impl->_mutable_data_ptr_no_checks().get(), impl, &drop_storage_reference, host);
  c10::Storage alias(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), impl->sym_nbytes(),
                                                           std::move(memory), c10::GetAllocator(c10::DeviceType::CPU),
                                                           impl->resizable()));
  storages_.push_back({storage, alias});
  return alias;
}

at::Tensor Aliases::alias(const at::Tensor& tensor, bool written) {
  for (auto& known : tensors_) {
    if (!known.original.is_same(tensor)) continue;
    if (written && !known.written) known.original.storage().unsafeGetStorageImpl()->mutable_data();
    known.written |= written;
    return known.alias;
  }
  if (has_layout(tensor)) return alias_layout(tensor, written);
  auto* source = tensor.unsafeGetTensorImpl();
  TORCH_CHECK(source->layout() == c10::kStrided && source->has_storage(),
              "the software device knows no tensors of layout ", source->layout());
  auto impl = source->shallow_copy_and_detach(source->version_counter(),
                                              /*allow_tensor_metadata_change=*/true);
  retarget(impl.get(), c10::Device(c10::DeviceType::CPU));
  impl.get()->*Fields::storage = alias_storage(source->storage(), written);
  tensors_.push_back({tensor, at::Tensor(std::move(impl)), written});
  return tensors_.back().alias;
}

at::Tensor Aliases::alias_layout(const at::Tensor& tensor, bool written) {
  auto alias = shallow_copy(tensor);
  move_layout(
      alias, c10::Device(c10::DeviceType::CPU), [&](const at::Tensor& part) { return this->alias(part, written); },
      [&](const c10::Storage& storage) { return alias_storage(storage, written); });
  tensors_.push_back({tensor, alias, written});
  return alias;
}

at::Tensor Aliases::restore_layout(at::Tensor result, c10::Device device) {
  if (result.use_count() > 1) result = shallow_copy(result);
  move_layout(
      result, device, [&](const at::Tensor& part) { return restore(part, device); },
      [&](const c10::Storage& storage) {
        for (const auto& known : storages_) {
          if (known.alias.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) return known.original;
        }
        adopt_storage(storage.unsafeGetStorageImpl(), device);
        return storage;
      });
  return result;
}

void Aliases::keep_host(const at::Tensor& tensor) {
  if (tensor.has_storage()) host_storages_.push_back(storage_of(tensor));
}

at::Tensor Aliases::restore(at::Tensor result, c10::Device device) {
  if (!result.defined() || result.device().type() != c10::DeviceType::CPU) return result;
  for (const auto& known : tensors_) {
    if (known.alias.is_same(result)) return known.original;
  }
  if (has_layout(result)) return restore_layout(std::move(result), device);
  auto* impl = result.unsafeGetTensorImpl();
  for (const auto& known : storages_) {
    if (known.alias.unsafeGetStorageImpl() != storage_of(result)) continue;
    retarget(impl, device);
    impl->*Fields::storage = known.original;
    return result;
  }
  for (const auto* host : host_storages_) {
    if (host == storage_of(result)) return restore(result.clone(), device);
  }
  adopt_storage(impl->unsafe_storage().unsafeGetStorageImpl(), device);
  retarget(impl, device);
  return result;
}

void Aliases::write_back_storage(const AliasedStorage& storage, c10::Device device) {
  auto* original = storage.original.unsafeGetStorageImpl();
  auto* alias = storage.alias.unsafeGetStorageImpl();
  if (alias->data() == original->data() && alias->nbytes() == original->nbytes()) return;
  const size_t bytes = alias->nbytes();
  auto memory = alias->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)));
  original->set_data_ptr_noswap(adopt_memory(std::move(memory), bytes, device.index()));
  original->set_nbytes(bytes);
}

void Aliases::write_back() {
  for (const auto& tensor : tensors_) {
    if (!tensor.written) continue;
    if (has_layout(tensor.original)) {
      const auto device = tensor.original.device();
      follow_layout(tensor.original, tensor.alias, [&](const at::Tensor& part) { return restore(part, device); });
      continue;
    }
    auto* original = tensor.original.unsafeGetTensorImpl();
    auto* alias = tensor.alias.unsafeGetTensorImpl();
    // First what may be refused: a tensor made by detach() cannot be resized.
    if (!same_geometry(original, alias)) {
      original->set_sizes_and_strides(alias->sizes(), alias->strides(), alias->storage_offset());
    }
    for (const auto& storage : storages_) {
      if (storage.original.unsafeGetStorageImpl() == storage_of(tensor.original)) {
        write_back_storage(storage, original->device());
      }
    }
  }
}

}  // namespace software
