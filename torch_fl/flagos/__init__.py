"""The device module `torch.flagos`: devices, streams, memory and random numbers, as `torch.cuda` has them for CUDA.

Importing it claims the device's name and loads the compiled module; `_register` then makes PyTorch know the device.
Devices are given as None (the current one), an index, a string such as "flagos:1", or a `torch.device`.
"""

from __future__ import annotations

from typing import Any

from torch import AcceleratorError, OutOfMemoryError

from torch_fl.flagos import _claim, _utils
from torch_fl.flagos._absent import REASONS
from torch_fl.flagos._lazy import _is_in_bad_fork, _lazy_init, init, is_initialized
from torch_fl.flagos._registration import _register
from torch_fl.flagos.devices import (
    DeviceProperties,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_available,
    is_bf16_supported,
    set_device,
    synchronize,
)
from torch_fl.flagos.memory import (
    caching_allocator_alloc,
    caching_allocator_delete,
    device_memory_used,
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
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
from torch_fl.flagos.sharing import from_vendor, to_vendor
from torch_fl.flagos.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)

__all__ = [
    "AcceleratorError",
    "DeviceProperties",
    "Event",
    "ExternalStream",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "_claim",
    "_is_in_bad_fork",
    "_lazy_init",
    "_register",
    "_utils",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "from_vendor",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    "to_vendor",
]


def ipc_collect() -> None:
    """Do nothing: memory is never shared with other processes, so there is none to collect. Here as in `torch.cuda`."""


def __getattr__(name: str) -> Any:
    # PyTorch's checkpointing asks for this one.
    if name == "_initialized":
        return is_initialized()
    reason = f": {REASONS[name]}" if name in REASONS else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{reason}")
