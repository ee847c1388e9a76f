#include "aten/FlagosLikeness.h"

#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <utility>

#include "core/FlagosAlias.h"
#include "core/FlagosDevice.h"

namespace flagos {

at::Tensor make_likeness(const at::Tensor& tensor) {
  if (!is_flagos(tensor)) {
    return tensor;
  }
  const c10::TensorImpl& from = *tensor.unsafeGetTensorImpl();
  const c10::Device device = vendor_device(from.device());
  auto storage =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0, c10::DataPtr(nullptr, device),
                                            /*allocator=*/nullptr, /*resizable=*/false);
  // The keys of a plain tensor, not the original's: those may name layers whose tensors are of classes of their own.
  auto likeness = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)), kVendorKeys, from.dtype());
  ImplAccess::copy_metadata(from, *likeness);
  ImplAccess::device(*likeness) = device;
  if (tensor.requires_grad()) {
    likeness->set_requires_grad(true);
  }
  return at::Tensor(std::move(likeness));
}

std::optional<at::Tensor> make_likeness(const std::optional<at::Tensor>& tensor) {
  return tensor ? std::optional<at::Tensor>(make_likeness(*tensor)) : std::nullopt;
}

}  // namespace flagos
