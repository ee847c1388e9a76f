#include <ATen/Context.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <string>
#include <utility>

#include "core/FlagosAllocator.h"
#include "core/FlagosCoverage.h"
#include "core/FlagosDevice.h"
#include "core/FlagosGenerator.h"
#include "core/FlagosMacros.h"
#include "core/FlagosRegistry.h"
#include "core/FlagosSharing.h"
#include "python/FlagosRuntimeBindings.h"
#include "route/FlagosRoutes.h"
#ifdef FLAGOS_FLAGGEMS_PYTHON
#include "route/FlagosPythonRoute.h"
#endif

namespace flagos {

namespace {

int exchange_device(int64_t index) { return vendor_guard().exchangeDevice({kVendor, resolve_index(index)}).index(); }

void set_device(int64_t index) { vendor_guard().setDevice({kVendor, resolve_index(index)}); }

void synchronize(int64_t index) { vendor_guard().synchronizeDevice(resolve_index(index)); }

void init() {
  at::globalContext().lazyInitDevice(kFlagos);
  // From now on a child of fork asks for initialisation again, and torch_fl.flagos refuses it.
  torch::utils::register_fork_handler_for_device_init(kFlagos);
}

/// The default stream's id and PyTorch's number for its device type, as torch.Stream's constructor takes them.
std::pair<int64_t, int64_t> default_stream(int64_t index) {
  const c10::Stream stream = vendor_guard().getDefaultStream({kVendor, resolve_index(index)});
  return {stream.id(), static_cast<int64_t>(kFlagos)};
}

void empty_cache() { vendor_caching_allocator().emptyCache(); }

/// Ends the autograd engine's device threads; a backward pass over device tensors cannot run afterwards.
void stop_autograd() { torch::autograd::Engine::get_default_engine().stop(); }

void route_cpu(const std::string& qualified) { route_to_cpu(parse_operator_name(qualified)); }

int count() { return device_count(); }

int current() { return current_device(); }

pybind11::dict build_options() {
  pybind11::dict options;
#ifdef FLAGOS_FLAGGEMS_PYTHON
  options["flaggems_python"] = true;
#else
  options["flaggems_python"] = false;
#endif
  options["torch"] = FLAGOS_TORCH_VERSION;
  options["runtime_prefix"] = FLAGOS_RUNTIME_PREFIX;
  return options;
}

void bind_devices(pybind11::module_& module) {
  module.def("_install", torch::wrap_pybind_function(&install));
  module.def("_init", torch::wrap_pybind_function_no_gil(&init));
  module.def("_has_vendor", &has_vendor);
  module.def("_device_count", &count);
  module.def("_current_device", torch::wrap_pybind_function(&current));
  module.def("_set_device", torch::wrap_pybind_function(&set_device));
  module.def("_exchange_device", torch::wrap_pybind_function(&exchange_device));
  module.def("_synchronize", torch::wrap_pybind_function_no_gil(&synchronize));
  module.def("_default_generator", torch::wrap_pybind_function(&default_generator));
  module.def("_default_stream", torch::wrap_pybind_function(&default_stream));
  module.def("_empty_cache", torch::wrap_pybind_function_no_gil(&empty_cache));
  module.def("_to_vendor", torch::wrap_pybind_function(&to_vendor));
  module.def("_from_vendor", torch::wrap_pybind_function(&from_vendor));
  module.def("_stop_autograd", torch::wrap_pybind_function_no_gil(&stop_autograd));
  module.def("_record_operators", torch::wrap_pybind_function(&record_operators));
  module.def("_recorded_operators", torch::wrap_pybind_function(&recorded_operators));
  module.def("_route_cpu", torch::wrap_pybind_function(&route_cpu));
  module.def("_log_dispatch", torch::wrap_pybind_function(&log_dispatch));
  module.def("_build_options", &build_options);
}

PyModuleDef g_module_definition = {
    PyModuleDef_HEAD_INIT, "torch_fl._C", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

}  // namespace flagos

/// Makes the module torch_fl._C; null with a Python error set if that fails. Called by the stub extension.
extern "C" FLAGOS_API PyObject* initFlagosModule() {
  PyObject* object = PyModule_Create(&flagos::g_module_definition);
  if (object == nullptr) {
    return nullptr;
  }
  auto module = pybind11::reinterpret_steal<pybind11::module_>(object);
  try {
    flagos::bind_devices(module);
    flagos::bind_runtime(module);
#ifdef FLAGOS_FLAGGEMS_PYTHON
    flagos::bind_python_route(module);
#endif
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
    return nullptr;
  }
  return module.release().ptr();
}
