#include "generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/GeneratorImpl.h>

#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "device.h"

namespace software {
namespace {

// Equal seeds give other numbers on the device than on the host, as on real hardware.
constexpr uint64_t kSeedMask = 0x9e3779b97f4a7c15ULL;
// How far one kernel moves the generator on.
constexpr uint64_t kStep = 4;
constexpr uint64_t kOffsetFactor = 0xbf58476d1ce4e5b9ULL;

// As a vendor's Philox generator: the state is a seed and an offset, and each kernel draws from its own stretch of the
// sequence, so that two threads may share one generator.
struct DeviceGenerator final : c10::GeneratorImpl {
  DeviceGenerator(c10::DeviceIndex device, uint64_t seed)
      : GeneratorImpl(c10::Device(kSelf, device), c10::DispatchKeySet(c10::DispatchKey::CUDA)), seed_(seed) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    const auto seed = c10::detail::getNonDeterministicRandom(/*is_cuda=*/true);
    set_current_seed(seed);
    return seed;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(
        state.numel() == kStateBytes && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.is_contiguous(),
        "RNG state must be a contiguous torch.ByteTensor of ", kStateBytes, " elements, got ", state.numel());
    const auto* bytes = static_cast<const char*>(state.data());
    std::memcpy(&seed_, bytes, sizeof(seed_));
    std::memcpy(&offset_, bytes + sizeof(seed_), sizeof(offset_));
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::detail::empty_cpu({kStateBytes}, c10::kByte);
    auto* bytes = static_cast<char*>(state.mutable_data_ptr());
    std::memcpy(bytes, &seed_, sizeof(seed_));
    std::memcpy(bytes + sizeof(seed_), &offset_, sizeof(offset_));
    return state.getIntrusivePtr();
  }

  // A generator of the host for one kernel.
  at::Generator engine() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto seed = (seed_ ^ kSeedMask) + kOffsetFactor * offset_;
    offset_ += kStep;
    return at::detail::createCPUGenerator(seed);
  }

 private:
  static constexpr int64_t kStateBytes = 2 * sizeof(uint64_t);

  DeviceGenerator* clone_impl() const override {
    auto* copy = new DeviceGenerator(device_.index(), seed_);
    copy->offset_ = offset_;
    return copy;
  }

  uint64_t seed_;
  uint64_t offset_ = 0;
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
