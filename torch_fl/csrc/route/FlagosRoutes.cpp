#include "route/FlagosRoutes.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/FlagosLayouts.h"
#include "core/FlagosRegistry.h"

namespace flagos {

namespace {

constexpr const char* kVendorTarget = "cuda";
constexpr const char* kCpuTarget = "cpu";

std::atomic<bool> g_logging{false};

std::string log_line(const c10::OperatorName& name, const char* target) {
  constexpr std::string_view kDefaultSpace = "aten::";
  std::string text = c10::toString(name);
  if (text.compare(0, kDefaultSpace.size(), kDefaultSpace) == 0) {
    text.erase(0, kDefaultSpace.size());
  }
  return "[flagos dispatch] " + text + " -> " + target + "\n";
}

/// Prints its line, then runs the kernel in whose place it stands. One insertion is one write: lines of threads do not
/// mix.
class LoggedKernel final : public c10::OperatorKernel {
 public:
  LoggedKernel(std::string line, c10::SafeKernelFunction kernel) : line_(std::move(line)), kernel_(std::move(kernel)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    std::cerr << line_ << std::flush;
    kernel_.callBoxed(op, keys, stack);
  }

 private:
  std::string line_;
  c10::SafeKernelFunction kernel_;
};

void run_routed_to_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

class Targets final {
 public:
  void note(const c10::OperatorName& name, const char* target) {
    const std::lock_guard<std::mutex> lock(mutex_);
    targets_[name] = target;
  }

  const char* of(const c10::OperatorName& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = targets_.find(name);
    return found == targets_.end() ? kVendorTarget : found->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<c10::OperatorName, const char*> targets_;
};

Targets& targets() {
  // Never destroyed: other threads may dispatch while the process ends.
  static auto* instance = new Targets();
  return *instance;
}

void log_kernels_of(c10::DispatchKey key) {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getRegistrationsForDispatchKey(key)) {
    const auto op = dispatcher.findSchema(name);
    if (!op || op->isKernelFallthroughKernel(key)) {
      continue;
    }
    replace_kernel(name,
                   c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<LoggedKernel>(
                       log_line(name, targets().of(name)), op->getComputedKernelForDispatchKey(key))),
                   key);
  }
}

}  // namespace

c10::OperatorName parse_operator_name(const std::string& qualified) {
  const size_t colons = qualified.find("::");
  TORCH_CHECK(colons != std::string::npos, "flagos: asked to route '", qualified,
              "', expected a qualified operator name such as 'aten::add.Tensor'");
  const size_t dot = qualified.find('.', colons);
  return dot == std::string::npos ? c10::OperatorName(qualified, "")
                                  : c10::OperatorName(qualified.substr(0, dot), qualified.substr(dot + 1));
}

void route_to_cpu(const c10::OperatorName& name) {
  replace_kernel(name, c10::KernelFunction::makeFromBoxedFunction<&run_routed_to_cpu>());
  note_target(name, kCpuTarget);
}

void note_target(const c10::OperatorName& name, const char* target) { targets().note(name, target); }

void log_dispatch() {
  if (!g_logging.exchange(true)) {
    log_kernels_of(c10::DispatchKey::PrivateUse1);
    for (const c10::DispatchKey key : kLayoutKeys) {
      log_kernels_of(key);
    }
  }
}

void log_fallback(const c10::OperatorName& name, const char* target) {
  if (g_logging.load(std::memory_order_relaxed)) {
    std::cerr << log_line(name, target) << std::flush;
  }
}

}  // namespace flagos
