#include "core/FlagosAllocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>

#include <utility>

#include "core/FlagosDevice.h"
#include "core/FlagosStorage.h"

namespace flagos {

namespace {

class FlagosAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    ensure_vendor_ready();
    c10::Allocator* vendor = c10::GetAllocator(kVendor);
    c10::DataPtr pointer = vendor->allocate(nbytes);
    const c10::DeviceIndex index = pointer.device().index();
    return facade_pointer(
        c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(nbytes),
                                              std::move(pointer), vendor, /*resizable=*/true),
        index);
  }

  /// PyTorch's contract: null when a pointer's context is not its address, as here; raw_allocate is then refused.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* destination, const void* source, size_t count) const override {
    c10::GetAllocator(kVendor)->copy_data(destination, source, count);
  }

  bool initialized() override {
    auto* vendor = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(kVendor));
    return vendor != nullptr && vendor->initialized();
  }

  void emptyCache(c10::MempoolId_t mempool_id) override { vendor_caching_allocator().emptyCache(mempool_id); }

  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    c10::StorageImpl* vendor = vendor_storage(pointer);
    vendor_caching_allocator().recordStream(vendor != nullptr ? vendor->data_ptr() : pointer, vendor_stream(stream));
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return vendor_caching_allocator().getDeviceStats(device);
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    vendor_caching_allocator().resetAccumulatedStats(device);
  }

  void resetPeakStats(c10::DeviceIndex device) override { vendor_caching_allocator().resetPeakStats(device); }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return vendor_caching_allocator().getMemoryInfo(device);
  }
};

}  // namespace

c10::DeviceAllocator& flagos_allocator() {
  // Never destroyed: storages may outlive the static objects of this library.
  static auto* allocator = new FlagosAllocator();
  return *allocator;
}

namespace {

REGISTER_ALLOCATOR(kFlagos, &flagos_allocator())

}  // namespace

c10::DeviceAllocator& vendor_caching_allocator() {
  auto* vendor = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(kVendor));
  TORCH_CHECK_NOT_IMPLEMENTED(vendor != nullptr,
                              "flagos: asked for memory statistics or a cache, but the vendor's allocator has none");
  return *vendor;
}

}  // namespace flagos
