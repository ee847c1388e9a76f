#include "linalg.h"

#include <ATen/DynamicLibrary.h>

#include <atomic>
#include <mutex>

#include "traits.h"

namespace software {
namespace {
std::atomic<bool> g_registered{false};
}

void register_linalg() noexcept { g_registered = true; }

void require_linalg() {
  if (traits().linalg_library == nullptr || g_registered) return;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (g_registered) return;
  const at::DynamicLibrary library(traits().linalg_library, nullptr, /*leak_handle=*/true);
  TORCH_CHECK(g_registered, traits().linalg_library,
              " was opened, but it is not this vendor's: ", "it registered no linear algebra with libtorch_cuda");
}

}  // namespace software
