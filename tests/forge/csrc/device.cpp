#include "device.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "driver_api.h"

namespace software {
namespace {

constexpr size_t kPoolSize = 32;

std::atomic<bool> g_initialized{false};

// What a stream of this device is called in c10: the runtime's handle; 0 is the default stream.
thread_local std::array<c10::StreamId, kMaxDevices> t_current_stream{};

c10::Device self(c10::DeviceIndex device) { return c10::Device(kSelf, device); }

c10::Stream stream_of(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, self(device), id);
}

struct StreamPool {
  std::mutex mutex;
  std::map<std::pair<c10::DeviceIndex, bool>, std::vector<c10::StreamId>> streams;
  std::map<std::pair<c10::DeviceIndex, bool>, size_t> next;
};

// Never destroyed: streams may be used by other libraries' exit handlers.
StreamPool& pool() {
  static auto* instance = new StreamPool;
  return *instance;
}

struct PinnedRanges {
  std::mutex mutex;
  std::map<const char*, size_t> ranges;
};

PinnedRanges& pinned() {
  static auto* instance = new PinnedRanges;
  return *instance;
}

void free_pinned_memory(void* pointer) {
  if (pointer == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(pinned().mutex);
    pinned().ranges.erase(static_cast<const char*>(pointer));
  }
  driver::release_host(pointer);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* pointer = nullptr;
    check(driver::allocate_host(&pointer, bytes), "allocate pinned memory");
    if (pointer != nullptr) {
      const std::lock_guard<std::mutex> lock(pinned().mutex);
      pinned().ranges[static_cast<const char*>(pointer)] = bytes;
    }
    return {pointer, pointer, &free_pinned_memory, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned_memory; }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
};

}  // namespace

void check(int code, const char* call) {
  // An error that is reported here is nobody else's any more.
  if (code != driver::kSuccess) driver::take_error();
  TORCH_CHECK(code == driver::kSuccess, "CUDA error: ", driver::error_string(code), " (", call, ", code ", code, ")");
}

void check_launch() { check(driver::take_error(), "launch a kernel"); }

c10::DeviceIndex device_count() noexcept {
  int count = 0;
  if (driver::device_count(&count) != driver::kSuccess) return 0;
  return static_cast<c10::DeviceIndex>(count);
}

c10::DeviceIndex current_device() {
  int device = 0;
  check(driver::get_device(&device), "get the current device");
  return static_cast<c10::DeviceIndex>(device);
}

void set_device(c10::DeviceIndex device) { check(driver::set_device(device), "set the current device"); }

c10::DeviceIndex resolve(c10::DeviceIndex index) {
  if (index == -1) return current_device();
  TORCH_CHECK(index >= 0 && index < device_count(), "CUDA error: invalid device ordinal: got ", static_cast<int>(index),
              ", this process has ", static_cast<int>(device_count()), " devices");
  return index;
}

void mark_initialized() noexcept { g_initialized = true; }
bool is_initialized() noexcept { return g_initialized; }

OnDevice::OnDevice(c10::DeviceIndex device) : before(current_device()) { set_device(device); }
OnDevice::~OnDevice() { driver::set_device(before); }

void synchronize(c10::DeviceIndex device) {
  const OnDevice guard(resolve(device));
  check(driver::device_synchronize(), "synchronize a device");
}

long runtime_version() {
  int version = 0;
  check(driver::runtime_version(&version), "ask for the runtime's version");
  return version;
}

c10::Stream current_stream(c10::DeviceIndex device) {
  const auto index = resolve(device);
  return stream_of(index, t_current_stream.at(index));
}

c10::Stream new_stream(c10::DeviceIndex device) {
  const auto index = resolve(device);
  const OnDevice guard(index);
  void* handle = nullptr;
  check(driver::stream_create(&handle), "create a stream");
  return stream_of(index, reinterpret_cast<c10::StreamId>(handle));
}

c10::Stream pool_stream(c10::DeviceIndex device, bool high_priority) {
  const auto index = resolve(device);
  const std::lock_guard<std::mutex> lock(pool().mutex);
  const auto key = std::make_pair(index, high_priority);
  auto& streams = pool().streams[key];
  if (streams.size() < kPoolSize) {
    streams.push_back(new_stream(index).id());
    return stream_of(index, streams.back());
  }
  return stream_of(index, streams[pool().next[key]++ % kPoolSize]);
}

c10::Stream exchange_stream(c10::Stream stream) {
  const auto index = resolve(stream.device_index());
  const auto before = t_current_stream.at(index);
  t_current_stream.at(index) = stream.id();
  return stream_of(index, before);
}

void* native_stream(const c10::Stream& stream) noexcept { return reinterpret_cast<void*>(stream.id()); }

c10::Allocator* pinned_allocator() noexcept {
  static auto* instance = new PinnedAllocator;
  return instance;
}

bool is_pinned(const void* pointer) {
  const std::lock_guard<std::mutex> lock(pinned().mutex);
  const auto* address = static_cast<const char*>(pointer);
  auto after = pinned().ranges.upper_bound(address);
  if (after == pinned().ranges.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return address < begin + bytes;
}

}  // namespace software
