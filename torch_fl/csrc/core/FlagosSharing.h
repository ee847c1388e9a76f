#pragma once

#include <ATen/core/Tensor.h>

#include "core/FlagosMacros.h"

namespace flagos {

/// Returns a tensor of the vendor's device type over the memory of `tensor`, a dense flagos one: nothing is copied,
/// both count versions together, either keeps the memory alive. It is detached from autograd, and neither side's
/// storage can be resized afterwards, since the other would not follow.
FLAGOS_API at::Tensor to_vendor(const at::Tensor& tensor);

/// The reverse: a flagos tensor over the memory of `tensor`, a dense one of the vendor's device type, on the same
/// terms. Tensors that share one vendor storage share one flagos storage.
FLAGOS_API at::Tensor from_vendor(const at::Tensor& tensor);

}  // namespace flagos
