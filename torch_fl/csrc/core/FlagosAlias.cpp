#include "core/FlagosAlias.h"

#include <c10/util/Exception.h>

#include <utility>

namespace flagos {

namespace {

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

void follow_changed_geometry(c10::TensorImpl& original, const c10::TensorImpl& alias) {
  original.set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
}

void check_layout(const at::Tensor& result) {
  TORCH_CHECK_NOT_IMPLEMENTED(is_dense_vendor(result) && result.has_storage(),
                              "flagos: an operator returned a tensor of layout ", result.layout(), " and key set ",
                              toString(result.key_set()),
                              "; flagos has dense tensors only, move the operands to the CPU first");
}

}  // namespace flagos
