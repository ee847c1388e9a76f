#include "layouts.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>

#include <utility>

namespace software {
namespace {

// As in alias.cpp: only the names are borrowed.
struct Fields : c10::TensorImpl {
  static constexpr auto device = &Fields::device_opt_;
  static constexpr auto storage = &Fields::storage_;
};

template <typename Impl>
Impl* as(const at::Tensor& tensor, c10::DispatchKey key) {
  return tensor.key_set().has(key) ? static_cast<Impl*>(tensor.unsafeGetTensorImpl()) : nullptr;
}

auto* as_sparse(const at::Tensor& tensor) { return as<at::SparseTensorImpl>(tensor, c10::DispatchKey::Sparse); }

auto* as_compressed(const at::Tensor& tensor) {
  return as<at::SparseCsrTensorImpl>(tensor, c10::DispatchKey::SparseCsr);
}

}  // namespace

at::Tensor shallow_copy(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  return at::Tensor(impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/true));
}

void move_layout(const at::Tensor& tensor, c10::Device device, ConvertTensor convert, ConvertStorage convert_storage) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->_change_backend_component_keys(device);
  impl->*Fields::device = device;
  if (auto* sparse = as_sparse(tensor)) {
    sparse->indices_ = convert(sparse->indices_);
    sparse->values_ = convert(sparse->values_);
  } else if (auto* compressed = as_compressed(tensor)) {
    compressed->crow_indices_ = convert(compressed->crow_indices_);
    compressed->col_indices_ = convert(compressed->col_indices_);
    compressed->values_ = convert(compressed->values_);
  } else {
    impl->*Fields::storage = convert_storage(impl->*Fields::storage);
  }
}

void follow_layout(const at::Tensor& original, const at::Tensor& alias, ConvertTensor convert) {
  if (auto* to = as_sparse(original)) {
    auto* from = as_sparse(alias);
    to->raw_resize_(from->sparse_dim(), from->dense_dim(), from->sizes());
    to->indices_ = convert(from->indices_);
    to->values_ = convert(from->values_);
    to->coalesced_ = from->coalesced_;
  } else if (auto* compressed = as_compressed(original)) {
    auto* from = as_compressed(alias);
    compressed->set_member_tensors(convert(from->crow_indices_), convert(from->col_indices_), convert(from->values_),
                                   alias.sizes());
  }
}

}  // namespace software
