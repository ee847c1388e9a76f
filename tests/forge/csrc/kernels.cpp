// Memory, storage, copies, and operators without a CPU kernel or with the wrong one.
#include "kernels.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "alias.h"
#include "device.h"

namespace software {
namespace {

// The device that a factory's arguments ask for; initialises the device, as every CUDA factory
// does.
c10::Device factory_device(std::optional<c10::Device> device, std::optional<c10::Layout> layout,
                           std::optional<bool> pin_memory) {
  TORCH_CHECK(layout.value_or(c10::kStrided) == c10::kStrided, "the software device has dense tensors only");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  at::globalContext().lazyInitDevice(kSelf);
  return {kSelf, resolve(device.has_value() ? device->index() : c10::DeviceIndex{-1})};
}

// Uninitialised memory gets a fixed content when PyTorch is asked for deterministic algorithms, as CUDA's factories do.
at::Tensor filled_if_deterministic(at::Tensor made) {
  const auto& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()) {
    at::native::fill_empty_deterministic_(made);
  }
  return made;
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                 std::optional<c10::Device> device, std::optional<bool> pin_memory,
                 std::optional<c10::MemoryFormat> memory_format) {
  const c10::DeviceGuard guard(factory_device(device, layout, pin_memory));
  return filled_if_deterministic(at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), device_allocator(),
                                                           c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                                           c10::dtype_or_default(dtype), memory_format));
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                         std::optional<bool> pin_memory) {
  const c10::DeviceGuard guard(factory_device(device, layout, pin_memory));
  return filled_if_deterministic(at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), device_allocator(),
      c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(dtype)));
}

// Either side may be on the host, and the sides may be two devices.
at::Tensor copy_operand(Aliases& aliases, const at::Tensor& tensor, bool written) {
  if (tensor.device().type() == kSelf) return aliases.alias(tensor, written);
  TORCH_CHECK(tensor.is_cpu(), "the software device copies to and from host memory and itself, not ", tensor.device());
  return tensor;
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.is_same(source)) return self;
  Aliases aliases;
  auto to = copy_operand(aliases, self, /*written=*/true);
  const auto from = copy_operand(aliases, source, /*written=*/false);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  to.copy_(from, non_blocking);
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, c10::Storage source, int64_t storage_offset, c10::IntArrayRef size,
                               c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, storage_offset, size, stride);
  const c10::DeviceGuard guard(self.device());
  self.unsafeGetTensorImpl()->set_storage_offset(storage_offset);
  at::native::resize_impl_cpu_(self.unsafeGetTensorImpl(), size,
                               stride.data() != nullptr ? at::OptionalIntArrayRef(stride) : at::OptionalIntArrayRef());
  return self;
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_offset(self, std::move(source), 0, elements, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_empty(at::Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, device_allocator(), /*resizable=*/true);
  return set_storage_offset(self, std::move(storage), 0, {0}, {});
}

// bernoulli_ draws from the device's own generator; the CPU's kernel would draw from the host's.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  const auto options = input.options().dtype(c10::kBool);
  if (input.numel() == 0) return {input, at::empty_like(input, options)};
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, options)};
  const double keep = 1 - p;
  auto mask = at::empty_like(input, options).bernoulli_(keep);
  return {input.mul(mask).mul_(keep == 0 ? 0.0 : 1.0 / keep), mask};
}

std::tuple<at::Tensor, at::Tensor> fused_dropout(const at::Tensor& self, double keep,
                                                 std::optional<at::Generator> generator) {
  auto mask = at::empty_like(self, self.options().dtype(c10::kByte)).bernoulli_(keep, std::move(generator));
  return {self.mul(mask).div_(keep), mask};
}

at::Tensor masked_scale(const at::Tensor& self, const at::Tensor& mask, double scale) {
  return self.mul(mask).mul_(scale);
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  c10::impl::getDeviceGuardImpl(kSelf)->recordDataPtrOnStream(self.storage().data_ptr(), stream);
}

bool no_vendor_ctc(const at::Tensor& /*log_probs*/, const at::Tensor& /*targets*/, c10::IntArrayRef /*input_lengths*/,
                   c10::IntArrayRef /*target_lengths*/, int64_t /*blank*/) {
  return false;
}

bool no_vendor_ctc_tensor(const at::Tensor& /*log_probs*/, const at::Tensor& /*targets*/,
                          const at::Tensor& /*input_lengths*/, const at::Tensor& /*target_lengths*/,
                          int64_t /*blank*/) {
  return false;
}

}  // namespace

// Always the decomposition into matmul and softmax: there is no fused kernel here.
int64_t choose_attention(const at::Tensor& /*query*/, const at::Tensor& /*key*/, const at::Tensor& /*value*/,
                         const std::optional<at::Tensor>& /*mask*/, double /*dropout*/, bool /*causal*/,
                         std::optional<double> /*scale*/, bool /*grouped*/) {
  constexpr int64_t kMath = 0;
  return kMath;
}

void register_kernels(torch::Library& library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("copy_", TORCH_FN(copy_));
  library.impl("set_.source_Storage", TORCH_FN(set_storage));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
  library.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  library.impl("set_", TORCH_FN(set_empty));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("native_dropout", TORCH_FN(native_dropout));
  library.impl("_fused_dropout", TORCH_FN(fused_dropout));
  library.impl("_masked_scale", TORCH_FN(masked_scale));
  library.impl("record_stream", TORCH_FN(record_stream));
  library.impl("_use_cudnn_ctc_loss", TORCH_FN(no_vendor_ctc));
  library.impl("_use_cudnn_ctc_loss.Tensor", TORCH_FN(no_vendor_ctc_tensor));
  // Torch 2.10 does not have these; a kernel without an operator is no error.
  library.impl("_use_miopen_ctc_loss", TORCH_FN(no_vendor_ctc));
  library.impl("_use_miopen_ctc_loss.Tensor", TORCH_FN(no_vendor_ctc_tensor));
  library.impl("_fused_sdp_choice", TORCH_FN(choose_attention));
  register_rnn_kernels(library);
}

}  // namespace software

namespace at::native {
// scaled_dot_product_attention asks this table directly, past the dispatcher.
REGISTER_CUDA_DISPATCH(_fused_sdp_choice_stub, &software::choose_attention)
}  // namespace at::native
