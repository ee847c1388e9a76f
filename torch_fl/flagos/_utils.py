"""Device arguments."""

from __future__ import annotations

from typing import TypeAlias

import torch

from torch_fl._C import _current_device
from torch_fl.flagos._claim import DEVICE_TYPE

Device: TypeAlias = torch.device | str | int | None
"""None is the current device; an index, a string such as "flagos:1" or a torch.device names one."""


def _get_device_index(device: Device, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the index that `device` names; the current one for None and for a device without index.

    The name and the two flags are PyTorch's: it calls this when it loads a file. `optional` allows None, `allow_cpu`
    the CPU, for which -1 is returned.

    Raises:
        ValueError: a device of another type, or None where that is not allowed.
    """
    if device is None and not optional:
        raise ValueError(f"expected a device of type {DEVICE_TYPE} or its index, got None")
    if isinstance(device, int):
        return device
    named = torch.device(DEVICE_TYPE if device is None else device)
    if named.type == "cpu" and allow_cpu:
        return -1
    if named.type != DEVICE_TYPE:
        raise ValueError(f"expected a device of type {DEVICE_TYPE}, got {named}")
    return int(_current_device()) if named.index is None else int(named.index)
