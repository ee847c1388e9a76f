#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include "core/FlagosMacros.h"

namespace flagos {

/// A flagos generator: the vendor's generator under another device type. All state lives in the vendor's, so that
/// numbers drawn through either name come from one sequence.
class FlagosGenerator final : public c10::GeneratorImpl {
 public:
  explicit FlagosGenerator(at::Generator vendor);

  const at::Generator& vendor() const { return vendor_; }

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

 private:
  FlagosGenerator* clone_impl() const override;

  /// Mutable because at::Generator hands out its mutex only when it is not const.
  mutable at::Generator vendor_;
};

/// Returns the vendor's generator behind a flagos one; any other generator as it is.
at::Generator vendor_generator(const at::Generator& generator);

/// The default generator of a device (-1: the current one); initialises the vendor at first use, because vendors create
/// their default generators only then.
FLAGOS_API const at::Generator& default_generator(int64_t index);

/// A new generator for a device (-1: the current one), seeded as the vendor seeds a new one.
FLAGOS_API at::Generator new_generator(int64_t index);

}  // namespace flagos
