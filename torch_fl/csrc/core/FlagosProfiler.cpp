#include "core/FlagosProfiler.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <memory>

#include "core/FlagosDevice.h"

namespace flagos {

namespace {

constexpr float kMicrosecondsPerMillisecond = 1000;

class FlagosProfiler final : public torch::profiler::impl::ProfilerStubs {
 public:
  void record(c10::DeviceIndex* device, torch::profiler::impl::ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    ensure_vendor_ready();
    const c10::DeviceIndex index = current_device();
    if (device != nullptr) {
      *device = index;
    }
    void* raw = nullptr;
    const c10::Stream stream = vendor_guard().getStream({kVendor, index});
    // BACKEND_DEFAULT is the flag of events that take the time.
    vendor_guard().record(&raw, stream, index, c10::EventFlag::BACKEND_DEFAULT);
    *event = std::shared_ptr<void>(raw, [index](void* made) { vendor_guard().destroyEvent(made, index); });
    if (cpu_ns != nullptr) {
      *cpu_ns = c10::getTime();
    }
  }

  /// PyTorch's contract: microseconds, and both events have happened when it returns.
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub* first,
                const torch::profiler::impl::ProfilerVoidEventStub* second) const override {
    vendor_guard().synchronizeEvent(first->get());
    vendor_guard().synchronizeEvent(second->get());
    const double milliseconds = vendor_guard().elapsedTime(first->get(), second->get(), current_device());
    return static_cast<float>(milliseconds) * kMicrosecondsPerMillisecond;
  }

  // Marks and ranges are for a vendor's own tracing tool, which no vendor-neutral interface reaches.
  void mark(const char* /*name*/) const override {}
  void rangePush(const char* /*name*/) const override {}
  void rangePop() const override {}

  bool enabled() const override { return device_count() > 0; }

  void onEachDevice(std::function<void(int)> visit) const override {
    for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
      const c10::DeviceGuard guard(c10::Device(kVendor, index));
      visit(index);
    }
  }

  void synchronize() const override { vendor_guard().synchronizeDevice(current_device()); }
};

}  // namespace

void register_profiler() {
  // PyTorch keeps the pointer for ever.
  torch::profiler::impl::registerPrivateUse1Methods(new FlagosProfiler());
}

}  // namespace flagos
