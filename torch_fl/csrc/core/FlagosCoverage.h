#pragma once

#include <string>
#include <vector>

#include "core/FlagosMacros.h"

namespace flagos {

/// From now on, note which operators run on flagos, in every thread. It makes each operator call slower, for the rest
/// of the process; without it nothing is noted and nothing costs. A second call changes nothing.
FLAGOS_API void record_operators();

/// Names, with overloads, of the operators that have been called with a flagos operand or device and did not throw.
FLAGOS_API std::vector<std::string> recorded_operators();

}  // namespace flagos
