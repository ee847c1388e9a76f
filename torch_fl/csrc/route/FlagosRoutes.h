#pragma once

#include <ATen/core/operator_name.h>

#include <string>

#include "core/FlagosMacros.h"

namespace flagos {

/// Returns the operator that `qualified` names, such as "aten::add.Tensor". Throws c10::Error without a namespace.
FLAGOS_API c10::OperatorName parse_operator_name(const std::string& qualified);

/// Gives an operator the CPU's kernel: operands go there, results come back. Throws c10::Error for an unknown operator.
FLAGOS_API void route_to_cpu(const c10::OperatorName& name);

/// Notes where an operator's kernel comes from, for the log.
FLAGOS_API void note_target(const c10::OperatorName& name, const char* target);

/// From now on, each dispatch to a kernel of flagos prints "[flagos dispatch] <operator> -> <target>" to stderr, before
/// the kernel runs. Every kernel there is now is replaced by one that prints, so that nothing is paid without the log.
/// A second call changes nothing.
FLAGOS_API void log_dispatch();

/// Prints the line of an operator that has no kernel here and falls back, if log_dispatch was called.
void log_fallback(const c10::OperatorName& name, const char* target);

}  // namespace flagos
