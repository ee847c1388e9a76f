#include "core/FlagosGenerator.h"

#include <map>
#include <mutex>
#include <utility>

#include "core/FlagosDevice.h"
#include "core/FlagosHooks.h"

namespace flagos {

// PyTorch's contract: the caller holds the lock of the generator it was given, which is the wrapper's; the vendor's own
// kernels hold the lock of the vendor's generator, so each access takes that one too.

FlagosGenerator::FlagosGenerator(at::Generator vendor)
    : c10::GeneratorImpl(flagos_device(vendor.device()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      vendor_(std::move(vendor)) {}

void FlagosGenerator::set_current_seed(uint64_t seed) {
  const std::lock_guard<std::mutex> lock(vendor_.mutex());
  vendor_.set_current_seed(seed);
}

void FlagosGenerator::set_offset(uint64_t offset) {
  const std::lock_guard<std::mutex> lock(vendor_.mutex());
  vendor_.set_offset(offset);
}

uint64_t FlagosGenerator::get_offset() const {
  const std::lock_guard<std::mutex> lock(vendor_.mutex());
  return vendor_.get_offset();
}

uint64_t FlagosGenerator::current_seed() const {
  const std::lock_guard<std::mutex> lock(vendor_.mutex());
  return vendor_.current_seed();
}

uint64_t FlagosGenerator::seed() {
  const std::lock_guard<std::mutex> lock(vendor_.mutex());
  return vendor_.seed();
}

void FlagosGenerator::set_state(const c10::TensorImpl& state) {
  const std::lock_guard<std::mutex> lock(vendor_.mutex());
  vendor_.unsafeGetGeneratorImpl()->set_state(state);
}

c10::intrusive_ptr<c10::TensorImpl> FlagosGenerator::get_state() const {
  const std::lock_guard<std::mutex> lock(vendor_.mutex());
  return vendor_.unsafeGetGeneratorImpl()->get_state();
}

void FlagosGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  const at::Generator vendor = vendor_generator(at::Generator(state));
  const std::lock_guard<std::mutex> lock(vendor_.mutex());
  vendor_.unsafeGetGeneratorImpl()->graphsafe_set_state(vendor.getIntrusivePtr());
}

c10::intrusive_ptr<c10::GeneratorImpl> FlagosGenerator::graphsafe_get_state() const {
  const std::lock_guard<std::mutex> lock(vendor_.mutex());
  return c10::make_intrusive<FlagosGenerator>(at::Generator(vendor_.unsafeGetGeneratorImpl()->graphsafe_get_state()));
}

FlagosGenerator* FlagosGenerator::clone_impl() const {
  const std::lock_guard<std::mutex> lock(vendor_.mutex());
  return new FlagosGenerator(vendor_.clone());
}

at::Generator vendor_generator(const at::Generator& generator) {
  if (!generator.defined() || generator.device().type() != kFlagos) {
    return generator;
  }
  return static_cast<FlagosGenerator*>(generator.unsafeGetGeneratorImpl())->vendor();
}

const at::Generator& default_generator(int64_t index) {
  ensure_vendor_ready();
  const c10::DeviceIndex resolved = resolve_index(index);
  // Never destroyed: Python may hold the wrappers until it exits. References into a map stay valid.
  static auto* wrappers = new std::map<c10::DeviceIndex, at::Generator>();
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  auto found = wrappers->find(resolved);
  if (found == wrappers->end()) {
    const at::Generator& vendor = vendor_hooks().getDefaultGenerator(resolved);
    found = wrappers->emplace(resolved, at::make_generator<FlagosGenerator>(vendor)).first;
  }
  return found->second;
}

at::Generator new_generator(int64_t index) {
  ensure_vendor_ready();
  return at::make_generator<FlagosGenerator>(vendor_hooks().getNewGenerator(resolve_index(index)));
}

}  // namespace flagos
