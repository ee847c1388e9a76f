// Linear algebra lives in a library of its own that is opened when it is first needed.
#pragma once

#include "device.h"

namespace software {

// Called by the linear algebra library when it is loaded.
SOFTWARE_API void register_linalg() noexcept;

// Opens the vendor's linear algebra library by bare name, once.
// Throws what the loader says, and if the library that was found is none of ours.
void require_linalg();

}  // namespace software
