"""Device memory. Statistics are PyTorch's own: `torch.accelerator.memory_allocated()` and its kin."""

from __future__ import annotations

from torch_fl._C import _empty_cache, _memory_info
from torch_fl.flagos._lazy import init, is_initialized
from torch_fl.flagos._utils import Device, _get_device_index


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return free and total memory of a device in bytes.

    Raises:
        RuntimeError: the vendor's runtime was not found, or there is no such device.
    """
    init()
    free, total = _memory_info(_get_device_index(device, optional=True))
    return int(free), int(total)


def empty_cache() -> None:
    """Give memory that the vendor's allocator holds, but no tensor uses, back to the device.

    Raises:
        NotImplementedError: the vendor's allocator has no cache.
    """
    if is_initialized():
        _empty_cache()
