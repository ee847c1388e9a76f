"""The device module `torch.flagos`: devices, streams, memory and random numbers, as `torch.cuda` has them for CUDA.

Importing it claims the device's name and loads the compiled module; `_register` then makes PyTorch know the device.
Devices are given as None (the current one), an index, a string such as "flagos:1", or a `torch.device`.
"""

from __future__ import annotations

from typing import Any

from torch_fl.flagos import _claim, _utils
from torch_fl.flagos._lazy import _is_in_bad_fork, _lazy_init, init, is_initialized
from torch_fl.flagos._registration import _register
from torch_fl.flagos.devices import (
    DeviceProperties,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_available,
    set_device,
    synchronize,
)
from torch_fl.flagos.memory import empty_cache, mem_get_info
from torch_fl.flagos.random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_fl.flagos.streams import Event, Stream, current_stream, default_stream, set_stream, stream

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "_claim",
    "_is_in_bad_fork",
    "_lazy_init",
    "_register",
    "_utils",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "mem_get_info",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    # PyTorch's checkpointing asks for this one.
    if name == "_initialized":
        return is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
