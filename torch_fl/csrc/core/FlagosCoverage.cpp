#include "core/FlagosCoverage.h"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "core/FlagosAlias.h"
#include "core/FlagosDevice.h"

namespace flagos {

namespace {

class Recorded final {
 public:
  void add(const c10::OperatorName& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    names_.insert(name);
  }

  std::vector<std::string> names() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::string> result;
    result.reserve(names_.size());
    for (const c10::OperatorName& name : names_) {
      result.push_back(c10::toString(name));
    }
    std::sort(result.begin(), result.end());
    return result;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<c10::OperatorName> names_;
};

Recorded& recorded() {
  // Never destroyed: threads may still run operators when static objects are.
  static auto* instance = new Recorded();
  return *instance;
}

bool concerns_flagos(const c10::IValue& value) {
  if (value.isTensor()) {
    return is_flagos(value.toTensor());
  }
  if (value.isDevice()) {
    return value.toDevice().type() == kFlagos;
  }
  if (value.isList()) {
    const auto list = value.toListRef();
    return std::any_of(list.begin(), list.end(), concerns_flagos);
  }
  return false;
}

/// How many exceptions were in flight when a call began: one more at its end means that it threw.
struct Begun final : at::ObserverContext {
  const int exceptions = std::uncaught_exceptions();
};

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
  const auto inputs = call.inputs();
  return std::any_of(inputs.begin(), inputs.end(), concerns_flagos) ? std::make_unique<Begun>() : nullptr;
}

void end(const at::RecordFunction& call, at::ObserverContext* context) {
  if (context == nullptr || static_cast<Begun*>(context)->exceptions != std::uncaught_exceptions()) {
    return;
  }
  if (const auto name = call.operator_name()) {
    recorded().add(*name);
  }
}

}  // namespace

void record_operators() {
  static const at::CallbackHandle handle = at::addGlobalCallback(
      at::RecordFunctionCallback(&begin, &end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  static_cast<void>(handle);
}

std::vector<std::string> recorded_operators() { return recorded().names(); }

}  // namespace flagos
