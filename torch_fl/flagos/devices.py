"""Which devices there are, which one is current, and what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from torch_fl._C import (
    _can_access_peer,
    _current_device,
    _device_capability,
    _device_count,
    _device_name,
    _exchange_device,
    _memory_info,
    _multiprocessor_count,
    _set_device,
    _synchronize,
)
from torch_fl.flagos._claim import DEVICE_TYPE
from torch_fl.flagos._lazy import init
from torch_fl.flagos._utils import Device, _get_device_index

if TYPE_CHECKING:
    from types import TracebackType

_BFLOAT16_CAPABILITY = 8


def device_count() -> int:
    """Return the number of devices; 0 without vendor libraries, driver or device. Never raises, initialises nothing."""
    return int(_device_count())


def is_available() -> bool:
    """Whether at least one device answers. Never raises, initialises nothing."""
    return device_count() > 0


def current_device() -> int:
    """Return the index of the calling thread's current device."""
    init()
    return int(_current_device())


def set_device(device: Device) -> None:
    """Make a device the calling thread's current one; a negative index changes nothing, as in `torch.cuda`.

    Raises:
        RuntimeError: there is no such device.
    """
    index = _get_device_index(device, optional=True)
    if index >= 0:
        _set_device(index)


def synchronize(device: Device = None) -> None:
    """Wait until all work on a device is done."""
    init()
    _synchronize(_get_device_index(device, optional=True))


class device:  # noqa: N801 - the name that PyTorch's device modules give it
    """A context in which another device is current; None and negative indices change nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None else _get_device_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            init()
            self.prev_idx = int(_exchange_device(self.idx))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.prev_idx >= 0:
            _set_device(self.prev_idx)


class device_of(device):  # noqa: N801 - as `device`
    """A context in which the device of a tensor or storage is current; others than flagos' change nothing."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage | torch.TypedStorage) -> None:
        super().__init__(obj.device if obj.device.type == DEVICE_TYPE else None)


@dataclass(frozen=True)
class DeviceProperties:
    """What the vendor's runtime says of a device.

    `total_memory` is in bytes; `major` and `minor`, the compute capability, and `multi_processor_count` are None where
    the runtime is not known to tell them.
    """

    name: str
    total_memory: int
    major: int | None
    minor: int | None
    multi_processor_count: int | None


def get_device_name(device: Device = None) -> str:
    """Return a device's name, as its vendor gives it."""
    init()
    return str(_device_name(_get_device_index(device, optional=True)))


def get_device_capability(device: Device = None) -> tuple[int, int] | None:
    """Return a device's compute capability; None where the vendor's runtime has no such notion.

    Raises:
        RuntimeError: the vendor's runtime was not found, or there is no such device.
    """
    init()
    major, minor = _device_capability(_get_device_index(device, optional=True))
    return (int(major), int(minor)) if major >= 0 else None


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Return what the vendor's runtime says of a device.

    Raises:
        RuntimeError: the vendor's runtime was not found, or there is no such device.
    """
    init()
    index = _get_device_index(device, optional=True)
    _, total = _memory_info(index)
    major, minor = get_device_capability(index) or (None, None)
    multiprocessors = int(_multiprocessor_count(index))
    return DeviceProperties(
        name=str(_device_name(index)),
        total_memory=int(total),
        major=major,
        minor=minor,
        multi_processor_count=multiprocessors if multiprocessors >= 0 else None,
    )


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Whether kernels on a device can reach another device's memory directly; a device is not its own peer.

    Raises:
        RuntimeError: the vendor's runtime was not found, or there is no such device.
    """
    init()
    return bool(_can_access_peer(_get_device_index(device), _get_device_index(peer_device)))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether tensors of bfloat16 can be made; without emulation, whether the hardware is known to compute with them.

    The hardware is known to where the vendor's runtime tells a compute capability of at least 8, as NVIDIA's does.
    """
    init()
    capability = get_device_capability()
    if capability is not None and capability[0] >= _BFLOAT16_CAPABILITY:
        return True
    if not including_emulation:
        return False
    try:
        torch.zeros(1, dtype=torch.bfloat16, device=DEVICE_TYPE)
    except RuntimeError:
        return False
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the data types that autocast may be asked for; float32, which changes little, as on cuda."""
    return [torch.float16, torch.bfloat16, torch.float32]
