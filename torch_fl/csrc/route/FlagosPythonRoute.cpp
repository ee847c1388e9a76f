#include "route/FlagosPythonRoute.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/core/operator_name.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/FlagosAlias.h"
#include "core/FlagosBoxed.h"
#include "core/FlagosCall.h"
#include "core/FlagosDevice.h"
#include "core/FlagosRegistry.h"
#include "route/FlagosRoutes.h"

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

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// The device that a call is about: the first tensor's on flagos, or the one a factory is asked for.
std::optional<c10::Device> device_of(const std::vector<c10::IValue>& arguments) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor() && is_flagos(value.toTensor())) {
      return value.toTensor().device();
    }
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        if (is_flagos(tensor)) {
          return tensor.device();
        }
      }
    }
    if (value.isDevice() && value.toDevice().type() == kFlagos) {
      return c10::Device(kFlagos, resolve_index(value.toDevice().index()));
    }
  }
  return std::nullopt;
}

/// Kernels written in Python take device pointers, so a CPU tensor that stands for a number goes to the device. What
/// was a Python number is a marked tensor here, and becomes a Python number again.
bool is_number_on_cpu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.dim() == 0 && !tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

void settle_argument(const c10::Argument& argument, c10::IValue& value, c10::Device device) {
  if (value.isDevice() && value.toDevice().type() == kFlagos) {
    value = c10::Device(kFlagos, resolve_index(value.toDevice().index()));
  } else if (value.isTensor() && !is_written(argument) && is_number_on_cpu(value.toTensor())) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    value = value.toTensor().to(device);
  }
}

/// How a function is called.
enum class Manner : bool {
  /// With flagos tensors and every argument.
  Flagos,
  /// As PyTorch calls a kernel of the vendor's device that is written in Python: with the vendor's tensors, devices and
  /// generators, and without arguments that have their default value (trailing ones, and keyword-only ones).
  Vendor,
};

bool has_default_value(const c10::Argument& argument, const c10::IValue& value) {
  return argument.default_value().has_value() && *argument.default_value() == value;
}

/// A kernel that calls a Python function with the operator's arguments, keyword-only ones by name.
///
/// The operator's device is current during the call. Where the function calls the operator itself, that call gets the
/// vendor's kernel, so that a function may hand on what it does not do.
///
/// In the vendor's manner, operands are lent to the function as to a vendor's kernel (VendorCall). Its tensors are of
/// no pool, so that it may keep them: they stay tensors of the vendor's device on the same memory.
class PythonKernel final : public c10::OperatorKernel {
 public:
  PythonKernel(py::function function, Manner manner) : function_(std::move(function)), manner_(manner) {}

  ~PythonKernel() override {
    if (Py_IsInitialized() != 0) {
      const py::gil_scoped_acquire gil;
      function_ = py::function();
    } else {
      function_.release();
    }
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    if (std::find(running().begin(), running().end(), this) != running().end()) {
      fall_back(op, keys, stack);
      return;
    }
    const Running here(this);
    const c10::FunctionSchema& schema = op.schema();
    std::vector<c10::IValue> arguments = torch::jit::pop(*stack, schema.arguments().size());
    std::optional<c10::DeviceGuard> guard;
    if (const std::optional<c10::Device> device = device_of(arguments)) {
      guard.emplace(*device);
      for (size_t i = 0; i < arguments.size(); ++i) {
        settle_argument(schema.arguments()[i], arguments[i], *device);
      }
    }
    if (manner_ == Manner::Vendor) {
      run_on_vendors_tensors(op, std::move(arguments), stack);
    } else {
      run(schema, arguments, stack);
    }
  }

 private:
  /// This thread's calls of Python kernels, outermost first.
  static std::vector<const PythonKernel*>& running() {
    static thread_local std::vector<const PythonKernel*> kernels;
    return kernels;
  }

  struct Running {
    explicit Running(const PythonKernel* kernel) { running().push_back(kernel); }
    ~Running() { running().pop_back(); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
  };

  void run(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments,
           torch::jit::Stack* stack) const {
    const py::gil_scoped_acquire gil;
    push_results(schema, arguments, call(schema, arguments), stack);
  }

  void run_on_vendors_tensors(const c10::OperatorHandle& op, std::vector<c10::IValue> arguments,
                              torch::jit::Stack* stack) const {
    const c10::FunctionSchema& schema = op.schema();
    VendorCall call(schema.is_mutable() ? Writes::Yes : Writes::No);
    for (c10::IValue& value : arguments) {
      lend_argument(call, value);
    }
    enter_vendor(call, op);
    run(schema, arguments, stack);
    call.finish();
    for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
      take_result(call, (*stack)[i]);
    }
  }

  /// Whether the function is to find its own default for this argument and, if it is positional, for all that follow.
  bool is_left_out(const c10::Argument& argument, const c10::IValue& value) const {
    return manner_ == Manner::Vendor && has_default_value(argument, value);
  }

  py::object call(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) const {
    const std::vector<c10::Argument>& declared = schema.arguments();
    size_t positional_count = 0;
    py::dict named;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (is_left_out(declared[i], arguments[i])) {
        continue;
      }
      if (declared[i].kwarg_only()) {
        named[py::str(declared[i].name())] = to_python(arguments[i], *declared[i].real_type());
      } else {
        positional_count = i + 1;
      }
    }
    py::list positional;
    for (size_t i = 0; i < positional_count; ++i) {
      positional.append(to_python(arguments[i], *declared[i].real_type()));
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

  static void push_results(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments,
                           const py::object& result, torch::jit::Stack* stack) {
    const auto& returns = schema.returns();
    if (returns.size() <= 1) {
      if (!returns.empty()) {
        push_result(schema, arguments, 0, result, stack);
      }
      return;
    }
    const bool is_row = py::isinstance<py::tuple>(result) || py::isinstance<py::list>(result);
    TORCH_CHECK(is_row && py::len(result) == returns.size(), "flagos: the Python kernel of ", schema.operator_name(),
                " must return a tuple of ", returns.size(), " values, got ",
                is_row ? c10::str(py::len(result), " in a ") : "", py::repr(py::type::of(result)).cast<std::string>());
    const auto results = py::reinterpret_borrow<py::sequence>(result);
    for (size_t i = 0; i < returns.size(); ++i) {
      push_result(schema, arguments, i, results[i], stack);
    }
  }

  static void push_result(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments, size_t number,
                          const py::object& result, torch::jit::Stack* stack) {
    const c10::Argument& declared = schema.returns()[number];
    if (is_written(declared)) {
      for (size_t i = 0; i < arguments.size(); ++i) {
        const c10::Argument& argument = schema.arguments()[i];
        if (is_written(argument) && arguments[i].isTensor() &&
            argument.alias_info()->beforeSets() == declared.alias_info()->beforeSets()) {
          check_same(schema, argument, arguments[i].toTensor(), result);
          torch::jit::push(stack, arguments[i]);
          return;
        }
      }
    }
    torch::jit::push(stack, torch::jit::toIValue(result, declared.real_type()));
  }

  /// An operator that writes returns the tensor it wrote to; None says the same.
  static void check_same(const c10::FunctionSchema& schema, const c10::Argument& argument, const at::Tensor& written,
                         const py::object& result) {
    TORCH_CHECK_TYPE(
        result.is_none() || (THPVariable_Check(result.ptr()) && THPVariable_Unpack(result.ptr()).is_same(written)),
        "flagos: the Python kernel of ", schema.operator_name(), " must write to '", argument.name(),
        "' and return it or None, got ", py::repr(py::type::of(result)).cast<std::string>(), " of its own");
  }

  py::function function_;
  Manner manner_;
};

void route_python(const std::string& qualified, py::function function, bool on_vendors_tensors) {
  const c10::OperatorName name = parse_operator_name(qualified);
  const Manner manner = on_vendors_tensors ? Manner::Vendor : Manner::Flagos;
  auto kernel = std::make_unique<PythonKernel>(std::move(function), manner);
  replace_kernel(name, c10::KernelFunction::makeFromBoxedFunctor(std::move(kernel)));
  note_target(name, "flagos_python");
}

}  // namespace

void bind_python_route(py::module_& module) { module.def("_route_python", torch::wrap_pybind_function(&route_python)); }

}  // namespace flagos
