#include "core/FlagosAlias.h"

#include <utility>

namespace flagos {

namespace {

/// Reaches protected members of TensorImpl through pointers to members, which a derived class may form.
struct ImplAccess : c10::TensorImpl {
  static void copy_metadata(const c10::TensorImpl& from, c10::TensorImpl& to) {
    copy_generic_tensor_metadata(&from, &to);
  }
  static c10::Storage& storage(c10::TensorImpl& impl) { return impl.*(&ImplAccess::storage_); }
  static c10::DispatchKeySet& keys(c10::TensorImpl& impl) { return impl.*(&ImplAccess::key_set_); }
  static c10::VariableVersion& version(c10::TensorImpl& impl) { return impl.*(&ImplAccess::version_counter_); }
  static std::optional<c10::Device>& device(c10::TensorImpl& impl) { return impl.*(&ImplAccess::device_opt_); }
};

/// Moves a TensorImpl to another device type; PyTorch's own function changes the keys, but not the device.
void retarget(c10::TensorImpl& impl, c10::Device device) {
  impl._change_backend_component_keys(device);
  ImplAccess::device(impl) = device;
}

}  // namespace

at::Tensor make_alias(const at::Tensor& tensor, c10::Storage storage) {
  const c10::TensorImpl& from = *tensor.unsafeGetTensorImpl();
  // The VIEW constructor allocates no version counter; the alias counts on its original's.
  auto impl =
      c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage), kVendorKeys, from.dtype());
  ImplAccess::copy_metadata(from, *impl);
  // Conjugate and negative bits must stay; Python's keys belong to the original's PyObject.
  ImplAccess::keys(*impl) = from.key_set() - c10::python_ks;
  ImplAccess::version(*impl) = from.version_counter();
  retarget(*impl, vendor_device(from.device()));
  return at::Tensor(std::move(impl));
}

at::Tensor adopt(at::Tensor result, c10::Storage storage) {
  const c10::Device device = flagos_device(result.device());
  if (result.use_count() == 1) {
    c10::TensorImpl& impl = *result.unsafeGetTensorImpl();
    ImplAccess::storage(impl) = std::move(storage);
    retarget(impl, device);
    return result;
  }
  const c10::TensorImpl& from = *result.unsafeGetTensorImpl();
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), from.key_set(), from.dtype());
  ImplAccess::copy_metadata(from, *impl);
  ImplAccess::keys(*impl) = from.key_set();
  retarget(*impl, device);
  return at::Tensor(std::move(impl));
}

void replace_storage(const at::Tensor& tensor, c10::Storage storage) {
  ImplAccess::storage(*tensor.unsafeGetTensorImpl()) = std::move(storage);
}

}  // namespace flagos
