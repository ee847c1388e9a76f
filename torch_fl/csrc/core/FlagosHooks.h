#pragma once

namespace flagos {

/// Tells PyTorch how to reach devices, generators, pinned memory and storage resizing of flagos. Must be called once
/// only.
void register_hooks();

}  // namespace flagos
