// Tensors that are not dense: sparse, compressed sparse, nested, quantized.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/FunctionRef.h>

namespace software {

constexpr c10::DispatchKeySet kLayouts({c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                                        c10::DispatchKey::NestedTensor, c10::DispatchKey::Quantized});

inline bool has_layout(const at::Tensor& tensor) { return tensor.key_set().has_any(kLayouts); }

// A tensor of the same class with the same parts and version counter.
at::Tensor shallow_copy(const at::Tensor& tensor);

using ConvertTensor = c10::function_ref<at::Tensor(const at::Tensor&)>;
using ConvertStorage = c10::function_ref<c10::Storage(const c10::Storage&)>;

// Moves a tensor to another device type: itself, and its indices and values or its storage by the
// functions given.
void move_layout(const at::Tensor& tensor, c10::Device device, ConvertTensor convert, ConvertStorage convert_storage);

// Gives `original` the sizes of `alias`, and its indices and values through `convert`.
void follow_layout(const at::Tensor& original, const at::Tensor& alias, ConvertTensor convert);

}  // namespace software
