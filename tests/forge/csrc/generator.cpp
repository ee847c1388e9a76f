#include "generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GeneratorImpl.h>

#include <utility>
#include <vector>

#include "device.h"

namespace software {
namespace {

// Equal seeds give other numbers on the device than on the host, as on real hardware.
constexpr uint64_t kSeedMask = 0x9e3779b97f4a7c15ULL;

struct DeviceGenerator final : c10::GeneratorImpl {
  DeviceGenerator(c10::DeviceIndex device, uint64_t seed)
      : GeneratorImpl(c10::Device(kSelf, device), c10::DispatchKeySet(c10::DispatchKey::CUDA)),
        seed_(seed),
        engine_(at::detail::createCPUGenerator(seed ^ kSeedMask)) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    engine_.set_current_seed(seed ^ kSeedMask);
  }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    const auto seed = c10::detail::getNonDeterministicRandom(/*is_cuda=*/true);
    set_current_seed(seed);
    return seed;
  }
  void set_offset(uint64_t /*offset*/) override {
    TORCH_CHECK(false, "the software device's generator has no offset to set: its engine is the host's mt19937");
  }
  uint64_t get_offset() const override {
    TORCH_CHECK(false, "the software device's generator has no offset: its engine is the host's mt19937");
  }
  void set_state(const c10::TensorImpl& state) override {
    engine_.unsafeGetGeneratorImpl()->set_state(state);
    seed_ = engine_.current_seed() ^ kSeedMask;
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return engine_.unsafeGetGeneratorImpl()->get_state();
  }

  const at::Generator& engine() const { return engine_; }

 private:
  DeviceGenerator* clone_impl() const override {
    auto* copy = new DeviceGenerator(device_.index(), seed_);
    copy->engine_ = engine_.clone();
    return copy;
  }

  uint64_t seed_;
  at::Generator engine_;
};

// Empty until the device is initialised; never destroyed.
std::vector<at::Generator>& defaults() {
  static auto* instance = new std::vector<at::Generator>;
  return *instance;
}

}  // namespace

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<DeviceGenerator>(resolve(device), c10::default_rng_seed_val);
}

void create_default_generators() {
  std::vector<at::Generator> made;
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) made.push_back(new_generator(device));
  defaults() = std::move(made);
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  TORCH_CHECK_INDEX(!defaults().empty(),
                    "default CUDA generators do not exist yet: they are created when the device is initialised "
                    "(at::globalContext().lazyInitDevice)");
  return defaults().at(resolve(device));
}

at::Generator host_engine(const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
  const bool given = generator.has_value() && generator->defined();
  const at::Generator& used = given ? *generator : default_generator(device);
  TORCH_CHECK(used.device().type() == kSelf, "Expected a 'cuda' device type for generator but found '",
              used.device().type(), "'");
  return used.get<DeviceGenerator>()->engine();
}

}  // namespace software
