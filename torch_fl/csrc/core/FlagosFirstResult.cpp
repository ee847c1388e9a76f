#include "core/FlagosFirstResult.h"

namespace flagos {

namespace {

thread_local const at::Tensor* t_operand = nullptr;

}  // namespace

FirstResultOnly::FirstResultOnly(const at::Tensor& operand) noexcept { t_operand = &operand; }

FirstResultOnly::~FirstResultOnly() { t_operand = nullptr; }

bool FirstResultOnly::is_wanted_of(const at::Tensor& operand) noexcept {
  if (t_operand != &operand) {
    return false;
  }
  t_operand = nullptr;
  return true;
}

}  // namespace flagos
