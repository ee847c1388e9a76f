#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/operator_name.h>

#include "core/FlagosMacros.h"

namespace flagos {

/// Registers the hooks, and the boxed kernel for every operator that the vendor has a kernel for and flagos has none.
/// Returns the number of operators so registered; a second call changes nothing and returns the same number.
FLAGOS_API size_t install();

/// Gives `name` another kernel for flagos; the one that it had stays registered below, so that a SafeKernelFunction of
/// it holds. Throws c10::Error for an unknown operator.
FLAGOS_API void replace_kernel(const c10::OperatorName& name, c10::KernelFunction kernel,
                               c10::DispatchKey key = c10::DispatchKey::PrivateUse1);

}  // namespace flagos
