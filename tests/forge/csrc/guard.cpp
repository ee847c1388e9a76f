// DeviceGuardImpl(CUDA): how torch's generic code reaches devices, streams and events.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device.h"
#include "driver_api.h"

namespace software {
namespace {

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kSelf; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    if (before.index() != device.index()) set_device(device.index());
    return before;
  }
  c10::Device getDevice() const override { return {kSelf, current_device()}; }
  void setDevice(c10::Device device) const override { set_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { driver::set_device(device.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }

  c10::Stream getStream(c10::Device device) const override { return current_stream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kSelf, resolve(device.index())));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override { return new_stream(device.index()); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return pool_stream(device.index(), high_priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  // Not marked override: torch 2.10 does not have it.
  void* getStreamNativeHandle(const c10::Stream stream) const { return native_stream(stream); }
  bool queryStream(const c10::Stream& stream) const override {
    check(driver::stream_query(native_stream(stream)), "query a stream");
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    check(driver::stream_synchronize(native_stream(stream)), "synchronize a stream");
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override { synchronize(device); }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag /*flag*/) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "Event device ", static_cast<int>(device),
                " does not match recording stream's device ", static_cast<int>(stream.device_index()), ".");
    if (*event == nullptr) check(driver::event_create(event), "create an event");
    check(driver::event_record(*event, native_stream(stream)), "record an event");
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    check(driver::stream_wait_event(native_stream(stream), event), "wait for an event");
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    check(driver::event_query(event), "query an event");
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    check(driver::event_synchronize(event), "synchronize an event");
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    if (event != nullptr) driver::event_destroy(event);
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex /*device*/) const override {
    float milliseconds = 0;
    check(driver::event_elapsed(&milliseconds, first, second), "time between events");
    return milliseconds;
  }

  // Work on the host is done when a call returns, so no memory has to outlive a stream. Only the
  // devices are compared, as a caching allocator does.
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get() == nullptr) return;
    TORCH_CHECK(data.device().type() == kSelf && stream.device_type() == kSelf,
                "recordStream: expected memory and stream of one device type, got ", data.device(), " and ",
                stream.device());
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace
}  // namespace software
