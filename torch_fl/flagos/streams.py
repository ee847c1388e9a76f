"""Streams and events: PyTorch's generic ones; made without a device, they are flagos'."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from torch_fl._C import _default_stream
from torch_fl.flagos._lazy import init
from torch_fl.flagos._utils import Device, _get_device_index

Stream = torch.Stream
Event = torch.Event


def current_stream(device: Device = None) -> torch.Stream:
    """Return the calling thread's current stream of a device."""
    init()
    stream: torch.Stream = torch.accelerator.current_stream(_get_device_index(device, optional=True))
    return stream


def default_stream(device: Device = None) -> torch.Stream:
    """Return a device's default stream."""
    init()
    index = _get_device_index(device, optional=True)
    stream_id, device_type = _default_stream(index)
    return torch.Stream(stream_id=stream_id, device_index=index, device_type=device_type)


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream, and its device, the calling thread's current ones; None changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


def stream(stream: torch.Stream | None) -> AbstractContextManager[Any]:
    """Return a context in which a stream, and its device, are current; None changes nothing."""
    return nullcontext() if stream is None else stream
