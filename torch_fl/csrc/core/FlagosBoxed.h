#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include "core/FlagosMacros.h"

namespace flagos {

class VendorCall;

/// Replaces one argument by what the vendor's kernel is to see.
FLAGOS_API void lend_argument(VendorCall& call, c10::IValue& value);

/// Makes the vendor ready for the operator's call, whose operands are all lent; operands on the vendor's own device
/// type are refused, except by copies.
FLAGOS_API void enter_vendor(VendorCall& call, const c10::OperatorHandle& op);

/// Replaces one result of the vendor's kernel, after VendorCall::finish(), by what the caller is to see.
FLAGOS_API void take_result(VendorCall& call, c10::IValue& value);

/// Runs an operator on the vendor's kernel for it; the boxed kernel that most operators of flagos have.
void run_on_vendor(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// Runs an operator that has no kernel of its own here: on the vendor's if it has one by now (libraries that were
/// loaded later), on the CPU otherwise, with one notice per operator on stderr.
FLAGOS_API void fall_back(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace flagos
