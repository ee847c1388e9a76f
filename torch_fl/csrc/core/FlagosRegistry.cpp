#include "core/FlagosRegistry.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/FlagosBoxed.h"
#include "core/FlagosHooks.h"
#include "core/FlagosHotOperators.h"
#include "core/FlagosLayouts.h"
#include "core/FlagosProfiler.h"

namespace flagos {

namespace {

/// Operators whose CUDA kernels only name the steps of a trace; flagos gets those from their decompositions.
bool is_skipped(const c10::OperatorName& name) {
  const std::optional<std::string_view> space = name.getNamespace();
  return !space || *space == "prims" || *space == "debugprims";
}

class NoWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

class Registry final {
 public:
  size_t install() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!installed_) {
      register_hooks();
      register_profiler();
      register_boxed();
      register_layouts();
      installed_ = true;
    }
    return boxed_;
  }

  void replace(const c10::OperatorName& name, c10::KernelFunction kernel, c10::DispatchKey key) {
    TORCH_CHECK(c10::Dispatcher::singleton().findSchema(name).has_value(), "flagos: asked to replace the kernel of ",
                name, ", but no such operator is known");
    const std::lock_guard<std::mutex> lock(mutex_);
    // PyTorch warns when one kernel is registered over another; here that is what was asked for.
    NoWarnings no_warnings;
    const c10::WarningUtils::WarningHandlerGuard guard(&no_warnings);
    add(name, std::move(kernel), key);
  }

 private:
  void add(const c10::OperatorName& name, c10::KernelFunction kernel, c10::DispatchKey key) {
    handles_.push_back(c10::Dispatcher::singleton().registerImpl(name, key, std::move(kernel),
                                                                 /*cpp_signature=*/std::nullopt,
                                                                 /*inferred_function_schema=*/nullptr,
                                                                 "registered by flagos"));
  }

  void register_boxed() {
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getRegistrationsForDispatchKey(c10::DispatchKey::CUDA)) {
      const auto op = dispatcher.findSchema(name);
      if (is_skipped(name) || !op || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) {
        continue;
      }
      c10::KernelFunction hot = hot_kernel(name);
      add(name, hot.isValid() ? std::move(hot) : c10::KernelFunction::makeFromBoxedFunction<&run_on_vendor>(),
          c10::DispatchKey::PrivateUse1);
      ++boxed_;
    }
  }

  void register_layouts() {
    for (LayoutKernel& made : layout_kernels()) {
      const auto op = c10::Dispatcher::singleton().findSchema(made.name);
      if (!is_skipped(made.name) && op && !op->hasKernelForDispatchKey(made.key)) {
        add(made.name, std::move(made.kernel), made.key);
      }
    }
  }

  std::mutex mutex_;
  bool installed_ = false;
  size_t boxed_ = 0;
  /// All that were ever registered: a replaced kernel stays below the one that took its place, which may call it.
  std::vector<c10::RegistrationHandleRAII> handles_;
};

Registry& registry() {
  // Never destroyed: the dispatcher may be gone before this library's static objects.
  static auto* instance = new Registry();
  return *instance;
}

}  // namespace

size_t install() { return registry().install(); }

void replace_kernel(const c10::OperatorName& name, c10::KernelFunction kernel, c10::DispatchKey key) {
  registry().replace(name, std::move(kernel), key);
}

}  // namespace flagos
