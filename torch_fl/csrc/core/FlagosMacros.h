#pragma once

/// Marks what other libraries of this package may call; everything else stays hidden.
#define FLAGOS_API __attribute__((visibility("default")))

/// For the few functions that every operator call goes through: they lie side by side in the library, so that they do
/// not take each other's places in the processor's cache of code.
#define FLAGOS_HOT __attribute__((hot))

/// The same, and what they call is compiled into them. GCC leaves PyTorch's small functions outside, each in memory
/// that a call has to load after the vendor's launch has taken its place in the processor's caches.
#define FLAGOS_FLATTEN __attribute__((flatten)) FLAGOS_HOT
