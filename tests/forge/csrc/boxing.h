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
  // Host operands of any kind are allowed: copies between host and device.
  kCopies,
  // As kPlain, after the vendor's linear algebra library was opened.
  kLinalg,
};

// Runs `op` on the CPU kernel with the device operands aliased; the calling convention of a boxed
// kernel. `cpu` is the CPU's key for the layout of the operands.
template <Boxing kind, c10::DispatchKey cpu = c10::DispatchKey::CPU>
void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

extern template void run_boxed<Boxing::kPlain>(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);
extern template void run_boxed<Boxing::kHostOperands>(const c10::OperatorHandle&, c10::DispatchKeySet,
                                                      torch::jit::Stack*);
extern template void run_boxed<Boxing::kComposite>(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);
extern template void run_boxed<Boxing::kLinalg>(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);

}  // namespace software
