#include "core/FlagosAliasPool.h"

#include <cstddef>

namespace flagos {

namespace {

/// Enough for an optimizer's list operators over a thousand parameters, which read some lists and write to others; 0.7
/// MB of each for a thread that has called those.
constexpr size_t kLimit = 4096;

/// Only a pointer, and never destroyed: static objects that outlive the thread's own may still call operators.
thread_local AliasPool* t_pool = nullptr;

}  // namespace

AliasPool::AliasPool(size_t limit) : limit_(limit) {
  // Memory is touched as far as it is used only.
  read_.reserve(limit);
  written_.reserve(limit);
}

FLAGOS_HOT AliasPool& AliasPool::of_thread() { return C10_LIKELY(t_pool != nullptr) ? *t_pool : first_of_thread(); }

C10_NOINLINE AliasPool& AliasPool::first_of_thread() {
  struct Owner {
    ~Owner() {
      static auto* closed = new AliasPool(0);
      t_pool = closed;
    }
    AliasPool pool{kLimit};
  };
  thread_local Owner owner;
  t_pool = &owner.pool;
  return owner.pool;
}

}  // namespace flagos
