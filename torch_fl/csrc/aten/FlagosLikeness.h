#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace flagos {

/// Returns a tensor of the vendor's that looks like `tensor` and has no memory: for the questions which kernel to take,
/// that composites ask of the vendor before they call an operator, and that are answered from types, sizes, strides and
/// the wish for gradients.
///
/// What asks may be more than a plain tensor, since composites run above all of PyTorch's layers: a wrapper of
/// torch.func, which has no storage, or a fake tensor, which has no memory on the device. Such a tensor cannot be lent.
/// What is not flagos' is returned as it is, as are undefined tensors.
at::Tensor make_likeness(const at::Tensor& tensor);
std::optional<at::Tensor> make_likeness(const std::optional<at::Tensor>& tensor);

}  // namespace flagos
