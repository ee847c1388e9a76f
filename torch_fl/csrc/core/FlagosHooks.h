#pragma once

#include <ATen/detail/AcceleratorHooksInterface.h>

namespace flagos {

/// The vendor's hooks. PyTorch gives a set that refuses everything when no vendor library was loaded before torch.
const at::AcceleratorHooksInterface& vendor_hooks();

/// Tells PyTorch how to reach devices, generators, pinned memory and storage resizing of flagos. Must be called once
/// only.
void register_hooks();

}  // namespace flagos
