// Generators of the software device: a host engine that is known as a generator of the device.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>

namespace software {

// Makes the default generators, one per device; called once by the hooks' init().
void create_default_generators();

// The device's default generator, -1 for the current device.
// Throws before create_default_generators(), and for an index out of range.
const at::Generator& default_generator(c10::DeviceIndex device);

at::Generator new_generator(c10::DeviceIndex device);

// The host engine behind `generator`, or behind the device's default one if there is none.
// Throws if it is a generator of another kind of device.
at::Generator host_engine(const std::optional<at::Generator>& generator, c10::DeviceIndex device);

}  // namespace software
