#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/operator_name.h>

namespace flagos {

/// The kernel compiled for the operator, or an invalid KernelFunction if it is not on the list of hot operators.
c10::KernelFunction hot_kernel(const c10::OperatorName& name);

}  // namespace flagos
