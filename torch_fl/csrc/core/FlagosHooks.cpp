#include "core/FlagosHooks.h"

#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Storage.h>

#include "core/FlagosDevice.h"
#include "core/FlagosGenerator.h"
#include "core/FlagosStorage.h"

namespace flagos {

namespace {

class FlagosHooks final : public at::PrivateUse1HooksInterface {
 public:
  void init() const override { ensure_vendor_ready(); }

  /// PyTorch's contract for both: never throws, initialises no device.
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }

  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return has_vendor() && vendor_hooks().hasPrimaryContext(index);
  }

  c10::DeviceIndex deviceCount() const override { return device_count(); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    vendor_guard().setDevice({kVendor, resolve_index(index)});
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return vendor_guard().exchangeDevice({kVendor, resolve_index(index)}).index();
  }
  /// As exchangeDevice; the vendor decides whether a device without a context is touched.
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return vendor_hooks().maybeExchangeDevice(resolve_index(index));
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }

  at::Device getDeviceFromPtr(void* data) const override {
    return flagos_device(vendor_hooks().getDeviceFromPtr(data));
  }

  /// Pinned memory is the vendor's: its copies recognise only its own, and its allocator defers reuse until they are
  /// done.
  bool isPinnedPtr(const void* data) const override { return vendor_hooks().isPinnedPtr(data); }
  at::Allocator* getPinnedMemoryAllocator() const override {
    ensure_vendor_ready();
    return vendor_hooks().getPinnedMemoryAllocator();
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), nbytes);
  }
};

}  // namespace

const at::AcceleratorHooksInterface& vendor_hooks() {
  return at::globalContext().getAcceleratorHooksInterface(kVendor);
}

void register_hooks() {
  // PyTorch keeps the pointer for ever.
  at::RegisterPrivateUse1HooksInterface(new FlagosHooks());
}

}  // namespace flagos
