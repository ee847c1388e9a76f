#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>

#include "core/FlagosDevice.h"
#include "core/FlagosStorage.h"

// Two functions of the interface exist only from some torch version on. They are declared without `override`, and
// overload resolution decides whether the vendor has them.
C10_CLANG_DIAGNOSTIC_PUSH()
#if C10_CLANG_HAS_WARNING("-Winconsistent-missing-override")
C10_CLANG_DIAGNOSTIC_IGNORE("-Winconsistent-missing-override")
#endif

namespace flagos {

namespace {

template <typename Guard>
auto native_handle(const Guard& guard, const c10::Stream& stream, int)
    -> decltype(guard.getStreamNativeHandle(stream)) {
  return guard.getStreamNativeHandle(stream);
}
template <typename Guard>
void* native_handle(const Guard&, const c10::Stream& stream, long) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "flagos: asked for the native handle of ", stream,
                              ", which this torch cannot give");
}

template <typename Guard>
auto capturing(const Guard& guard, const c10::Stream& stream, int) -> decltype(guard.isStreamCapturing(stream)) {
  return guard.isStreamCapturing(stream);
}
template <typename Guard>
bool capturing(const Guard&, const c10::Stream&, long) {
  return false;
}

/// Devices, streams and events of flagos are the vendor's, under another device type.
class FlagosGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr c10::DeviceType static_type = kFlagos;

  c10::DeviceType type() const override { return kFlagos; }

  c10::Device exchangeDevice(c10::Device device) const override {
    return flagos_device(vendor_guard().exchangeDevice(resolved(device)));
  }
  c10::Device getDevice() const override { return flagos_device(vendor_guard().getDevice()); }
  void setDevice(c10::Device device) const override { vendor_guard().setDevice(resolved(device)); }

  /// PyTorch's contract: no check and no exception, since destructors call it; the device is one that was current
  /// before.
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (has_vendor()) {
      vendor_guard().uncheckedSetDevice(vendor_device(device));
    }
  }

  c10::Stream getStream(c10::Device device) const override {
    return flagos_stream(vendor_guard().getStream(resolved(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return flagos_stream(vendor_guard().getDefaultStream(resolved(device)));
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    ensure_vendor_ready();
    return flagos_stream(vendor_guard().getNewStream(resolved(device), priority));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    ensure_vendor_ready();
    return flagos_stream(vendor_guard().getStreamFromGlobalPool(resolved(device), high_priority));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return flagos_stream(vendor_guard().exchangeStream(vendor_stream(stream)));
  }
  bool queryStream(const c10::Stream& stream) const override {
    return vendor_guard().queryStream(vendor_stream(stream));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    vendor_guard().synchronizeStream(vendor_stream(stream));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const {
    return native_handle(vendor_guard(), vendor_stream(stream), 0);
  }
  bool isStreamCapturing(const c10::Stream& stream) const {
    return capturing(vendor_guard(), vendor_stream(stream), 0);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex index,
              const c10::EventFlag flag) const override {
    vendor_guard().record(event, vendor_stream(stream), index, flag);
  }
  void block(void* event, const c10::Stream& stream) const override {
    vendor_guard().block(event, vendor_stream(stream));
  }
  bool queryEvent(void* event) const override { return vendor_guard().queryEvent(event); }
  void synchronizeEvent(void* event) const override { vendor_guard().synchronizeEvent(event); }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex index) const override {
    return vendor_guard().elapsedTime(start, end, index);
  }
  void destroyEvent(void* event, const c10::DeviceIndex index) const noexcept override {
    if (has_vendor()) {
      vendor_guard().destroyEvent(event, index);
    }
  }

  /// PyTorch's contract: never raises; zero devices when anything is wrong.
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }

  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    return vendor_guard().getDeviceCapability(resolved(device));
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    vendor_guard().synchronizeDevice(resolve_index(index));
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& stream) const override {
    c10::StorageImpl* vendor = vendor_storage(pointer);
    vendor_guard().recordDataPtrOnStream(vendor != nullptr ? vendor->data_ptr() : pointer, vendor_stream(stream));
  }

 private:
  static c10::Device resolved(c10::Device device) {
    TORCH_CHECK(device.type() == kFlagos, "flagos: asked to switch to device ", device,
                ", expected one of type flagos");
    return {kVendor, resolve_index(device.index())};
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, FlagosGuard)

}  // namespace

}  // namespace flagos

C10_CLANG_DIAGNOSTIC_POP()
