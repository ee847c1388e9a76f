#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <optional>

#include "core/FlagosDevice.h"
#include "core/FlagosUnboxed.h"

namespace flagos {

namespace {

const c10::Device kCurrent(kFlagos, -1);

/// Memory comes from the vendor's own factories, which also fill it when deterministic algorithms are asked for.
at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory,
                 std::optional<at::MemoryFormat> memory_format) {
  return Unboxed<at::_ops::empty_memory_format>::run(size, dtype, layout, device.value_or(kCurrent), pin_memory,
                                                     memory_format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  return Unboxed<at::_ops::empty_strided>::run(size, stride, dtype, layout, device.value_or(kCurrent), pin_memory);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
}

}  // namespace

}  // namespace flagos
