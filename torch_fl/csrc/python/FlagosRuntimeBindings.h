#pragma once

#include <torch/csrc/utils/pybind.h>

namespace flagos {

/// Adds what the vendor's runtime knows of its devices; the runtime is looked for at the first call.
void bind_runtime(pybind11::module_& module);

}  // namespace flagos
