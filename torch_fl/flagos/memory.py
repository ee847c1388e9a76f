"""Device memory: what is used, what the vendor's allocator keeps in reserve, and giving that back.

Statistics are the vendor allocator's own, by PyTorch's interface for them; all of them are 0 before initialisation.
They raise NotImplementedError where the vendor's allocator keeps none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torch_fl._C import _empty_cache, _memory_info
from torch_fl.flagos._claim import DEVICE_TYPE
from torch_fl.flagos._lazy import init, is_initialized
from torch_fl.flagos._utils import Device, _get_device_index
from torch_fl.flagos.streams import stream as stream_context

if TYPE_CHECKING:
    from collections import OrderedDict

_SUMMARY_ROWS = {
    "Allocated memory": "allocated_bytes.all",
    "Active memory": "active_bytes.all",
    "Requested memory": "requested_bytes.all",
    "Reserved memory": "reserved_bytes.all",
    "Non-releasable memory": "inactive_split_bytes.all",
    "Allocations": "allocation.all",
    "Active allocations": "active.all",
    "Reserved segments": "segment.all",
    "Non-releasable allocations": "inactive_split.all",
}
_SUMMARY_COLUMNS = {"Current": "current", "Peak": "peak", "Total allocated": "allocated", "Total freed": "freed"}
_ABBREVIATED = ("Allocated memory", "Reserved memory", "Allocations", "Reserved segments")

_held: dict[int, torch.UntypedStorage] = {}
"""Memory handed out as bare addresses."""


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return free and total memory of a device in bytes.

    Raises:
        RuntimeError: the vendor's runtime was not found, or there is no such device.
    """
    init()
    free, total = _memory_info(_get_device_index(device, optional=True))
    return int(free), int(total)


def device_memory_used(device: Device = None) -> int:
    """Return how many bytes of a device are in use, by all processes."""
    free, total = mem_get_info(device)
    return total - free


def empty_cache() -> None:
    """Give memory that the vendor's allocator holds, but no tensor uses, back to the device.

    Raises:
        NotImplementedError: the vendor's allocator has no cache.
    """
    if is_initialized():
        _empty_cache()


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """Return the allocator's statistics of a device, in bytes and counts, by the names of `torch.cuda.memory_stats`."""
    index = _get_device_index(device, optional=True)
    stats: OrderedDict[str, Any] = torch.accelerator.memory_stats(index)
    return stats


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """Return the statistics of `memory_stats` with a dictionary for each part of a name."""
    nested: dict[str, Any] = {}
    for name, value in memory_stats(device).items():
        *parents, last = name.split(".")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return nested


def _stat(device: Device, name: str) -> int:
    return int(memory_stats(device).get(name, 0))


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that tensors occupy on a device."""
    return _stat(device, "allocated_bytes.all.current")


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes that tensors have occupied, since the start or `reset_peak_memory_stats`."""
    return _stat(device, "allocated_bytes.all.peak")


def memory_reserved(device: Device = None) -> int:
    """Return the bytes that the allocator holds of a device, used or not."""
    return _stat(device, "reserved_bytes.all.current")


def max_memory_reserved(device: Device = None) -> int:
    """Return the most bytes that the allocator has held, since the start or `reset_peak_memory_stats`."""
    return _stat(device, "reserved_bytes.all.peak")


def reset_peak_memory_stats(device: Device = None) -> None:
    """Begin the peaks of a device's statistics anew, at their current values."""
    torch.accelerator.reset_peak_memory_stats(_get_device_index(device, optional=True))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Begin the totals of a device's statistics anew, at 0."""
    torch.accelerator.reset_accumulated_memory_stats(_get_device_index(device, optional=True))


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Return the allocator's statistics of a device as a table; bytes and counts."""
    index = _get_device_index(device, optional=True)
    stats = memory_stats(index)
    lines = [f"{DEVICE_TYPE}:{index} memory, bytes and counts"]
    lines.append(f"{'':<28}" + "".join(f"{title:>20}" for title in _SUMMARY_COLUMNS))
    for title, name in _SUMMARY_ROWS.items():
        if not abbreviated or title in _ABBREVIATED:
            values = (stats.get(f"{name}.{column}", 0) for column in _SUMMARY_COLUMNS.values())
            lines.append(f"{title:<28}" + "".join(f"{value:>20}" for value in values))
    return "\n".join(lines) + "\n"


def caching_allocator_alloc(size: int, device: Device = None, stream: torch.Stream | None = None) -> int:
    """Allocate `size` bytes of a device, for use on `stream`, and return their address for `caching_allocator_delete`.

    For working with other libraries; 0 bytes have address 0.
    """
    init()
    index = _get_device_index(device, optional=True)
    with stream_context(stream):
        storage = torch.UntypedStorage(size, device=torch.device(DEVICE_TYPE, index))
    address = int(storage.data_ptr())
    if address:
        _held[address] = storage
    return address


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free memory that `caching_allocator_alloc` gave.

    Raises:
        ValueError: no such memory, or it was freed already.
    """
    if mem_ptr and _held.pop(mem_ptr, None) is None:
        raise ValueError(f"flagos: {mem_ptr:#x} is no address that caching_allocator_alloc gave and that is still held")
