// One boxed kernel for every operator that has a CPU kernel.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace software {

enum class Boxing {
  // Host operands must be 0-dimensional, as for kernels of a real device.
  kPlain,
  // Host operands are allowed: indices, lengths.
  kHostOperands,
  // As kPlain, for operators whose CPU kernel is a composite one.
  kComposite,
  // As kPlain, after the vendor's linear algebra library was opened.
  kLinalg,
};

// Runs `op` on the CPU kernel with the device operands aliased; the calling convention of a boxed
// kernel.
template <Boxing kind>
void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

extern template void run_boxed<Boxing::kPlain>(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);
extern template void run_boxed<Boxing::kHostOperands>(const c10::OperatorHandle&, c10::DispatchKeySet,
                                                      torch::jit::Stack*);
extern template void run_boxed<Boxing::kComposite>(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);
extern template void run_boxed<Boxing::kLinalg>(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);

}  // namespace software
