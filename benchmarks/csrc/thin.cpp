// Kernels as thin as a host's part of a real vendor kernel: check of devices, allocation, a few additions. They take
// the places of the vendor's own in this process, so that what an operator call costs beside them is the dispatch
// alone.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#endif

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

extern "C" {
/// Whether kernels do their additions: the host must be able to read the device's memory.
bool thin_arithmetic = true;
/// Whether kernels fill the caches of the first level, code and data, as the launch of a real kernel does.
bool thin_cold = false;
}

namespace {

constexpr int64_t kElements = 8;
// Twice what processors have, of either kind.
constexpr size_t kCached = 96 * 1024;

void fill_caches() {
  static volatile char data[kCached];
  for (size_t i = 0; i < kCached; i += 64) {
    data[i] = 1;
  }
#ifdef __x86_64__
  asm volatile(".rept 24576; nopl 0(%rax); .endr");
#else
  asm volatile(".rept 24576; nop; .endr");
#endif
}

/// Memory that was freed is given out again, as the caching allocators of vendors do, and nothing besides: the software
/// device's own allocator takes three to five times what the rest of a call takes, and scatters by more than the
/// difference that is looked for. `empty` alone still uses that one.
class ThinAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK(bytes <= kBlock, "thin kernel: ", bytes, " bytes asked for, blocks have ", kBlock);
    void* block = free_.empty() ? ::operator new(kBlock) : free_.back();
    if (!free_.empty()) {
      free_.pop_back();
    }
    return {block, block, &give_back, c10::Device(c10::DeviceType::CUDA, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static constexpr size_t kBlock = 512;
  static void give_back(void* block) { free_.push_back(block); }
  static inline std::vector<void*> free_;
};

ThinAllocator allocator;

void check(const at::Tensor& left, const at::Tensor& right) {
  TORCH_CHECK(left.is_cuda() && left.device() == right.device(), "thin kernel: expected operands on one cuda device");
}

at::Tensor allocate(c10::IntArrayRef size) {
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA), at::kFloat,
                                   std::nullopt);
}

void add_into(const at::Tensor& left, const at::Tensor& right, const at::Tensor& result) {
  const float* a = left.const_data_ptr<float>();
  const float* b = right.const_data_ptr<float>();
  float* c = result.mutable_data_ptr<float>();
  if (thin_cold) {
    fill_caches();
  }
  if (!thin_arithmetic) {
    return;
  }
  for (int64_t i = 0; i < kElements; ++i) {
    c[i] = a[i] + b[i];
  }
}

at::Tensor add(const at::Tensor& left, const at::Tensor& right, const at::Scalar& /*alpha*/) {
  check(left, right);
  at::Tensor result = allocate(left.sizes());
  add_into(left, right, result);
  return result;
}

at::Tensor& add_(at::Tensor& left, const at::Tensor& right, const at::Scalar& /*alpha*/) {
  check(left, right);
  add_into(left, right, left);
  return left;
}

at::Tensor& add_out(const at::Tensor& left, const at::Tensor& right, const at::Scalar& /*alpha*/, at::Tensor& out) {
  check(left, right);
  check(left, out);
  add_into(left, right, out);
  return out;
}

at::Tensor neg(const at::Tensor& self) {
  at::Tensor result = allocate(self.sizes());
  add_into(self, self, result);
  return result;
}

at::Tensor cat(const at::ITensorListRef& tensors, int64_t /*dim*/) {
  at::Tensor result = allocate({kElements});
  for (const at::Tensor& tensor : tensors) {
    add_into(tensor, tensor, result);
  }
  return result;
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool /*non_blocking*/) {
  check(self, source);
  add_into(source, source, self);
  return self;
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& left, const at::Tensor& right, const at::Scalar& /*beta*/,
                 const at::Scalar& /*alpha*/) {
  check(self, left);
  at::Tensor result = allocate(left.sizes());
  add_into(left, right, result);
  return result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(const at::Tensor& input, c10::SymIntArrayRef /*shape*/,
                                                          const std::optional<at::Tensor>& weight,
                                                          const std::optional<at::Tensor>& bias, double /*eps*/) {
  check(input, *weight);
  at::Tensor result = allocate(input.sizes());
  add_into(input, *bias, result);
  return {result, allocate({1}), allocate({1})};
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("add.Tensor", TORCH_FN(add));
  library.impl("add_.Tensor", TORCH_FN(add_));
  library.impl("add.out", TORCH_FN(add_out));
  library.impl("neg", TORCH_FN(neg));
  library.impl("cat", TORCH_FN(cat));
  library.impl("copy_", TORCH_FN(copy));
  library.impl("addmm", TORCH_FN(addmm));
  library.impl("native_layer_norm", TORCH_FN(layer_norm));
}

using Call = std::function<void()>;

std::map<std::string, Call> calls_on(const std::string& device) {
  const auto make = [&] { return at::ones({kElements}, at::TensorOptions(c10::Device(device)).dtype(at::kFloat)); };
  const at::Tensor x = make();
  const at::Tensor y = make();
  const at::Tensor out = make();
  std::vector<at::Tensor> few{x, y};
  std::vector<at::Tensor> many;
  for (int i = 0; i < 32; ++i) {
    many.push_back(make());
  }
  const std::optional<at::Tensor> weight = make();
  const std::optional<at::Tensor> bias = make();
  const c10::Device place(device);
  return {
      {"neg", [=] { at::_ops::neg::call(x); }},
      {"add", [=] { at::_ops::add_Tensor::call(x, y, 1); }},
      {"add_", [=]() mutable { at::_ops::add__Tensor::call(const_cast<at::Tensor&>(x), y, 1); }},
      {"add.out", [=]() mutable { at::_ops::add_out::call(x, y, 1, const_cast<at::Tensor&>(out)); }},
      {"copy_", [=]() mutable { at::_ops::copy_::call(const_cast<at::Tensor&>(x), y, false); }},
      {"addmm", [=] { at::_ops::addmm::call(x, y, out, 1, 1); }},
      {"layer_norm", [=] { at::native_layer_norm(x, {kElements}, weight, bias, 1e-5); }},
      {"cat of 2", [=] { at::_ops::cat::call(few, 0); }},
      {"cat of 32", [=] { at::_ops::cat::call(many, 0); }},
      {"empty", [=] { at::empty({kElements}, at::TensorOptions(place)); }},
      {"view", [=] { x.view({2, 4}); }},
  };
}

double nanoseconds(const timespec& time) {
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

}  // namespace

/// Returns the nanoseconds of this thread's CPU time that one call of a case takes on a device; -1 and a line on stderr
/// if it fails. Keys of autograd are excluded, as they are inside an autograd kernel.
extern "C" double thin_time(const char* name, const char* device, int64_t calls) {
  try {
    static std::map<std::string, std::map<std::string, Call>> prepared;
    auto found = prepared.find(device);
    if (found == prepared.end()) {
      found = prepared.emplace(device, calls_on(device)).first;
    }
    const Call& call = found->second.at(name);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    call();
    timespec start{};
    timespec end{};
    CALLGRIND_START_INSTRUMENTATION;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    for (int64_t i = 0; i < calls; ++i) {
      call();
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    CALLGRIND_STOP_INSTRUMENTATION;
    return (nanoseconds(end) - nanoseconds(start)) / static_cast<double>(calls);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s on %s: %s\n", name, device, error.what());
    return -1;
  }
}
