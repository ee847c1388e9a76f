#pragma once

/// Marks what other libraries of this package may call; everything else stays hidden.
#define FLAGOS_API __attribute__((visibility("default")))
