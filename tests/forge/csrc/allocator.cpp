// Device memory with the statistics that a caching allocator keeps; nothing is cached, so all that is reserved is used.
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <array>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "device.h"
#include "driver_api.h"

namespace software {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kSmall = size_t{1} << 20;

struct Block {
  size_t bytes;
  c10::DeviceIndex device;
};

struct Accounts {
  std::mutex mutex;
  std::array<DeviceStats, kMaxDevices> stats;
  std::unordered_map<void*, Block> blocks;
};

// Never destroyed: tensors may be freed by other libraries' exit handlers.
Accounts& accounts() {
  static auto* instance = new Accounts;
  return *instance;
}

// Calls `change` for the sum and for the pool that a block of this size comes from.
template <typename Change>
void for_each_pool(StatArray& stats, size_t bytes, Change change) {
  change(stats[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)]);
  change(stats[static_cast<size_t>(bytes <= kSmall ? c10::CachingAllocator::StatType::SMALL_POOL
                                                   : c10::CachingAllocator::StatType::LARGE_POOL)]);
}

template <typename Change>
void for_each_count(DeviceStats& stats, size_t bytes, Change change) {
  for (StatArray* counts : {&stats.allocation, &stats.segment, &stats.active}) for_each_pool(*counts, bytes, change);
}

template <typename Change>
void for_each_size(DeviceStats& stats, size_t bytes, Change change) {
  for (StatArray* sizes :
       {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
    for_each_pool(*sizes, bytes, change);
  }
}

template <typename Change>
void for_each_stat(DeviceStats& stats, Change change) {
  for (StatArray* array :
       {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
        &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes}) {
    for (Stat& stat : *array) change(stat);
  }
}

void note(void* pointer, size_t bytes, c10::DeviceIndex device) {
  const std::lock_guard<std::mutex> lock(accounts().mutex);
  auto& stats = accounts().stats.at(device);
  for_each_count(stats, bytes, [](Stat& stat) { stat.increase(1); });
  for_each_size(stats, bytes, [bytes](Stat& stat) { stat.increase(bytes); });
  ++stats.num_device_alloc;
  accounts().blocks.insert_or_assign(pointer, Block{bytes, device});
}

void forget(void* pointer) {
  const std::lock_guard<std::mutex> lock(accounts().mutex);
  const auto found = accounts().blocks.find(pointer);
  if (found == accounts().blocks.end()) return;
  const size_t bytes = found->second.bytes;
  auto& stats = accounts().stats.at(found->second.device);
  for_each_count(stats, bytes, [](Stat& stat) { stat.decrease(1); });
  for_each_size(stats, bytes, [bytes](Stat& stat) { stat.decrease(bytes); });
  ++stats.num_device_free;
  accounts().blocks.erase(found);
}

void free_device_memory(void* pointer) {
  if (pointer != nullptr) forget(pointer);
  driver::release(pointer);
}

struct DeviceAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const auto device = current_device();
    TORCH_CHECK(is_initialized(), "Allocator not initialized for device ", static_cast<int>(device),
                ": did you call init?");
    void* pointer = nullptr;
    const int code = driver::allocate(&pointer, bytes);
    if (code == driver::kOutOfMemory) fail_out_of_memory(bytes, device);
    check(code, "allocate");
    if (pointer != nullptr) note(pointer, bytes, device);
    return {pointer, pointer, &free_device_memory, c10::Device(kSelf, device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_device_memory; }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

  bool initialized() override { return is_initialized(); }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  // Work on the host is done when a call returns, so no memory has to outlive a stream.
  void recordStream(const c10::DataPtr& /*memory*/, c10::Stream /*stream*/) override {}
  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const std::lock_guard<std::mutex> lock(accounts().mutex);
    return accounts().stats.at(resolve(device));
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    const std::lock_guard<std::mutex> lock(accounts().mutex);
    auto& stats = accounts().stats.at(resolve(device));
    for_each_stat(stats, [](Stat& stat) { stat.reset_accumulated(); });
    stats.num_ooms = stats.num_device_alloc = stats.num_device_free = 0;
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    const std::lock_guard<std::mutex> lock(accounts().mutex);
    for_each_stat(accounts().stats.at(resolve(device)), [](Stat& stat) { stat.reset_peak(); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const OnDevice guard(resolve(device));
    size_t free_bytes = 0;
    size_t total = 0;
    check(driver::memory_info(&free_bytes, &total), "ask for free memory");
    return {free_bytes, total};
  }

 private:
  [[noreturn]] static void fail_out_of_memory(size_t bytes, c10::DeviceIndex device) {
    driver::take_error();
    size_t free_bytes = 0;
    size_t total = 0;
    driver::memory_info(&free_bytes, &total);
    {
      const std::lock_guard<std::mutex> lock(accounts().mutex);
      ++accounts().stats.at(device).num_ooms;
    }
    C10_THROW_ERROR(OutOfMemoryError,
                    c10::str("CUDA out of memory. Tried to allocate ", bytes, " bytes. GPU ", static_cast<int>(device),
                             " has a total capacity of ", total, " bytes of which ", free_bytes, " are free."));
  }
};

struct AdoptedMemory {
  c10::DataPtr memory;
  size_t bytes;
  c10::DeviceIndex device;
};

void free_adopted_memory(void* context) {
  auto* adopted = static_cast<AdoptedMemory*>(context);
  driver::account(adopted->device, -static_cast<int64_t>(adopted->bytes));
  forget(adopted->memory.get());
  delete adopted;
}

}  // namespace

c10::Allocator* device_allocator() noexcept {
  static auto* instance = new DeviceAllocator;
  return instance;
}

c10::DataPtr adopt_memory(c10::DataPtr memory, size_t bytes, c10::DeviceIndex device) {
  void* pointer = memory.get();
  if (pointer == nullptr) return {nullptr, c10::Device(kSelf, device)};
  auto* adopted = new AdoptedMemory{std::move(memory), bytes, device};
  driver::account(device, static_cast<int64_t>(bytes));
  note(pointer, bytes, device);
  return {pointer, adopted, &free_adopted_memory, c10::Device(kSelf, device)};
}

namespace {
struct RegisterAllocator {
  RegisterAllocator() { c10::SetAllocator(kSelf, device_allocator()); }
} const g_register_allocator;
}  // namespace

}  // namespace software
