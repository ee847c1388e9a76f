#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <optional>

#include "core/FlagosCall.h"
#include "core/FlagosDevice.h"

namespace flagos {

namespace {

/// Memory comes from the vendor's own factories, which also fill it when deterministic algorithms are asked for.
at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory,
                 std::optional<at::MemoryFormat> memory_format) {
  VendorCall call(Writes::No);
  const c10::Device lent = call.lend(device.value_or(c10::Device(kFlagos, -1)));
  call.enter();
  return call.take(
      at::_ops::empty_memory_format::redispatch(kVendorKeys, size, dtype, layout, lent, pin_memory, memory_format));
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  VendorCall call(Writes::No);
  const c10::Device lent = call.lend(device.value_or(c10::Device(kFlagos, -1)));
  call.enter();
  return call.take(at::_ops::empty_strided::redispatch(kVendorKeys, size, stride, dtype, layout, lent, pin_memory));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
}

}  // namespace

}  // namespace flagos
