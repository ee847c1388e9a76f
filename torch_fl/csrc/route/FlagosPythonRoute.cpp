#include "route/FlagosPythonRoute.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/core/operator_name.h>
#include <ATen/core/stack.h>
#include <c10/util/Exception.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/FlagosRegistry.h"

namespace py = pybind11;

namespace flagos {

namespace {

/// The dispatcher keeps data types, layouts and memory formats as integers; Python code wants torch's own objects.
py::object to_python(const c10::IValue& value, const c10::Type& type) {
  if (value.isInt()) {
    const int64_t number = value.toInt();
    PyObject* object = nullptr;
    switch (type.kind()) {
      case c10::TypeKind::ScalarTypeType:
        object = reinterpret_cast<PyObject*>(torch::getTHPDtype(static_cast<c10::ScalarType>(number)));
        break;
      case c10::TypeKind::LayoutType:
        object = reinterpret_cast<PyObject*>(torch::getTHPLayout(static_cast<c10::Layout>(number)));
        break;
      case c10::TypeKind::MemoryFormatType:
        object = torch::utils::getTHPMemoryFormat(static_cast<c10::MemoryFormat>(number));
        break;
      case c10::TypeKind::OptionalType:
        return to_python(value, *type.castRaw<c10::OptionalType>()->getElementType());
      default:
        break;
    }
    if (object != nullptr) {
      return py::reinterpret_borrow<py::object>(object);
    }
  }
  return torch::jit::toPyObject(value);
}

/// A kernel that calls a Python function with the operator's arguments, keyword-only ones by name.
class PythonKernel final : public c10::OperatorKernel {
 public:
  explicit PythonKernel(py::function function) : function_(std::move(function)) {}

  ~PythonKernel() override {
    if (Py_IsInitialized() != 0) {
      const py::gil_scoped_acquire gil;
      function_ = py::function();
    } else {
      function_.release();
    }
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    const c10::FunctionSchema& schema = op.schema();
    std::vector<c10::IValue> arguments = torch::jit::pop(*stack, schema.arguments().size());
    const py::gil_scoped_acquire gil;
    push_results(schema, call(schema, arguments), stack);
  }

 private:
  py::object call(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) const {
    py::list positional;
    py::dict named;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::Argument& argument = schema.arguments()[i];
      py::object object = to_python(arguments[i], *argument.real_type());
      if (argument.kwarg_only()) {
        named[py::str(argument.name())] = std::move(object);
      } else {
        positional.append(std::move(object));
      }
    }
    PyObject* result = PyObject_Call(function_.ptr(), py::tuple(positional).ptr(), named.ptr());
    if (result == nullptr) {
      // PyTorch's own carrier: the exception reaches the caller unchanged, across C++ frames and threads.
      python_error error;
      error.persist();
      throw error;
    }
    return py::reinterpret_steal<py::object>(result);
  }

  static void push_results(const c10::FunctionSchema& schema, const py::object& result, torch::jit::Stack* stack) {
    const auto& returns = schema.returns();
    if (returns.empty()) {
      return;
    }
    if (returns.size() == 1) {
      torch::jit::push(stack, torch::jit::toIValue(result, returns[0].real_type()));
      return;
    }
    TORCH_CHECK(py::isinstance<py::tuple>(result) && py::len(result) == returns.size(), "flagos: the Python kernel of ",
                schema.operator_name(), " must return a tuple of ", returns.size(), " values, got ",
                py::repr(py::type::of(result)).cast<std::string>());
    const auto results = py::reinterpret_borrow<py::tuple>(result);
    for (size_t i = 0; i < returns.size(); ++i) {
      torch::jit::push(stack, torch::jit::toIValue(results[i], returns[i].real_type()));
    }
  }

  py::function function_;
};

c10::OperatorName parse_name(const std::string& qualified) {
  const size_t colons = qualified.find("::");
  TORCH_CHECK(colons != std::string::npos, "flagos: asked to route '", qualified,
              "', expected a qualified operator name such as 'aten::add.Tensor'");
  const size_t dot = qualified.find('.', colons);
  return dot == std::string::npos ? c10::OperatorName(qualified, "")
                                  : c10::OperatorName(qualified.substr(0, dot), qualified.substr(dot + 1));
}

void route_python(const std::string& qualified, py::function function) {
  replace_kernel(parse_name(qualified),
                 c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<PythonKernel>(std::move(function))));
}

}  // namespace

void bind_python_route(py::module_& module) { module.def("_route_python", torch::wrap_pybind_function(&route_python)); }

}  // namespace flagos
