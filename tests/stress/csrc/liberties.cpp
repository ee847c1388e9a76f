// Kernels that take liberties with their operands, in the places of the vendor's own: they keep them, watch them,
// change what belongs to the caller. What they do must stay with the operand of that call.
#include <ATen/ATen.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/library.h>

#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

std::vector<at::Tensor>& kept() {
  static std::vector<at::Tensor> tensors;
  return tensors;
}

std::vector<WeakTensor>& watched() {
  static std::vector<WeakTensor> tensors;
  return tensors;
}

struct Mark final : c10::BackendMeta {};

c10::TensorImpl& impl_of(const at::Tensor& tensor) { return *tensor.unsafeGetTensorImpl(); }

at::Tensor keep(const at::Tensor& self) {
  kept().push_back(self);
  return at::empty_like(self);
}

at::Tensor keep_for_a_thread(const at::Tensor& self) {
  std::thread([held = self]() mutable { held.reset(); }).detach();
  return at::empty_like(self);
}

at::Tensor watch(const at::Tensor& self) {
  watched().emplace_back(self.getIntrusivePtr());
  return at::empty_like(self);
}

at::Tensor want_gradient(const at::Tensor& self) {
  impl_of(self).set_requires_grad(true);
  return at::empty_like(self.detach());
}

at::Tensor mark(const at::Tensor& self) {
  impl_of(self).set_backend_meta(c10::make_intrusive<Mark>());
  return at::empty(self.sizes(), self.options());
}

at::Tensor reshape(const at::Tensor& self) {
  const std::vector<int64_t> sizes{1, 1, 1, 1, 1, 1, self.numel()};
  impl_of(self).set_sizes_contiguous(sizes);
  impl_of(self).set_allow_tensor_metadata_change(false);
  return at::empty(sizes, self.options());
}

at::Tensor change_storage(const at::Tensor& self) {
  const at::Tensor other = at::zeros_like(self);
  impl_of(self).set_storage_keep_dtype(other.storage());
  return at::empty_like(other);
}

at::Tensor& change_handle(at::Tensor& self) {
  self = at::zeros_like(self);
  return self;
}

at::Tensor keep_copy(const at::Tensor& self) {
  const c10::TensorImpl& impl = impl_of(self);
  kept().emplace_back(impl.shallow_copy_and_detach(impl.version_counter(), true));
  return at::empty_like(self);
}

at::Tensor& count_up(at::Tensor& self) {
  impl_of(self).bump_version();
  return self;
}

/// Refuses an operand that is not as a call of its own would get it.
at::Tensor look(const at::Tensor& self) {
  c10::TensorImpl& impl = impl_of(self);
  TORCH_CHECK(self.use_count() == 1 && self.weak_use_count() == 1, "someone else holds the operand");
  TORCH_CHECK(impl.version_counter().enabled() && impl.version_counter().unique(), "someone else counts its versions");
  TORCH_CHECK(impl.autograd_meta() == nullptr, "the operand has autograd's data");
  TORCH_CHECK(impl.get_backend_meta() == nullptr, "the operand has another's meta data");
  TORCH_CHECK(impl.allow_tensor_metadata_change(), "the operand may not be resized");
  TORCH_CHECK(self.dim() == 2 && self.is_contiguous() && self.device().is_cuda(), "the operand has another's geometry");
  return self.clone();
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("neg", TORCH_FN(keep));
  library.impl("sin", TORCH_FN(keep_for_a_thread));
  library.impl("cos", TORCH_FN(watch));
  library.impl("exp", TORCH_FN(want_gradient));
  library.impl("log", TORCH_FN(mark));
  library.impl("sqrt", TORCH_FN(reshape));
  library.impl("rsqrt", TORCH_FN(change_storage));
  library.impl("tanh_", TORCH_FN(change_handle));
  library.impl("reciprocal", TORCH_FN(keep_copy));
  library.impl("neg_", TORCH_FN(count_up));
  library.impl("floor", TORCH_FN(look));
}

}  // namespace

/// Returns how many of the operands that keep() kept hold `value` throughout and have `columns` columns.
extern "C" int64_t liberties_kept(double value, int64_t columns) {
  int64_t found = 0;
  for (const at::Tensor& tensor : kept()) {
    found += tensor.size(-1) == columns && (tensor == value).all().item<bool>() ? 1 : 0;
  }
  return found;
}

/// Returns how many of the operands that watch() saw are alive.
extern "C" int64_t liberties_alive() {
  int64_t found = 0;
  for (const WeakTensor& tensor : watched()) {
    found += tensor.expired() ? 0 : 1;
  }
  return found;
}

/// Lets go of all operands.
extern "C" void liberties_end() {
  kept().clear();
  watched().clear();
}
