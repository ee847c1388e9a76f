#pragma once

#include <torch/csrc/utils/pybind.h>

namespace flagos {

/// Adds _route_python: a flagos operator's kernel may then be a Python callable.
void bind_python_route(pybind11::module_& module);

}  // namespace flagos
