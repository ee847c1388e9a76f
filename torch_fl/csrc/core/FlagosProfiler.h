#pragma once

namespace flagos {

/// Gives PyTorch's profiler a clock of the device: `torch.autograd.profiler.profile(use_device="flagos")` then reports
/// each operator's time on the device, by the vendor's events. Must be called once only.
void register_profiler();

}  // namespace flagos
