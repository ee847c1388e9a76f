#include <ATen/core/CachingHostAllocator.h>
#include <c10/util/Exception.h>

#include "core/FlagosDevice.h"
#include "core/FlagosHooks.h"

namespace flagos {

namespace {

/// Pinned memory by PyTorch's interface for caches of it: the vendor's. torch.accelerator asks for one without looking
/// whether there is any.
class FlagosHostAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    ensure_vendor_ready();
    return vendor_hooks().getPinnedMemoryAllocator()->allocate(nbytes);
  }

  void copy_data(void* destination, const void* source, size_t count) const override {
    default_copy_data(destination, source, count);
  }

  bool record_event(void* pointer, void* context, c10::Stream stream) override {
    return vendor().record_event(pointer, context, vendor_stream(stream));
  }

  void empty_cache() override { vendor().empty_cache(); }
  at::HostStats get_stats() override { return vendor().get_stats(); }
  void reset_accumulated_stats() override { vendor().reset_accumulated_stats(); }
  void reset_peak_stats() override { vendor().reset_peak_stats(); }

 private:
  static at::HostAllocator& vendor() {
    ensure_vendor_ready();
    at::HostAllocator* allocator = at::getHostAllocator(kVendor);
    TORCH_CHECK_NOT_IMPLEMENTED(allocator != nullptr,
                                "flagos: asked for the cache of pinned memory or its statistics, but the vendor's "
                                "allocator has none");
    return *allocator;
  }
};

FlagosHostAllocator& host_allocator() {
  // Never destroyed: pinned memory may outlive the static objects of this library.
  static auto* allocator = new FlagosHostAllocator();
  return *allocator;
}

REGISTER_HOST_ALLOCATOR(kFlagos, &host_allocator())

}  // namespace

}  // namespace flagos
