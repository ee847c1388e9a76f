#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "core/FlagosMacros.h"

namespace flagos {

/// The allocator registered for flagos: memory comes from the vendor's allocator, so that memory made on either side
/// shares one pool, and each pointer is a facade of a vendor storage.
FLAGOS_API c10::DeviceAllocator& flagos_allocator();

/// The vendor's allocator. Throws c10::Error when none is registered, or when it has no caching interface.
FLAGOS_API c10::DeviceAllocator& vendor_caching_allocator();

}  // namespace flagos
