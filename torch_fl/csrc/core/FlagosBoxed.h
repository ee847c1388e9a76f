#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace flagos {

/// Runs an operator on the vendor's kernel for it; the boxed kernel that most operators of flagos have.
void run_on_vendor(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// Runs an operator that has no kernel of its own here: on the vendor's if it has one by now (libraries that were
/// loaded later), on the CPU otherwise, with one notice per operator on stderr.
void fall_back(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace flagos
