// libtorch_cuda_linalg.so.
#include "linalg.h"

namespace software {
namespace {
struct RegisterLinalg {
  RegisterLinalg() { register_linalg(); }
} const g_register_linalg;
}  // namespace
}  // namespace software
