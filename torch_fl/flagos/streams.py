"""Streams and events: PyTorch's generic ones; made without a device, they are flagos'."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torch_fl._C import _default_stream
from torch_fl.flagos._lazy import init
from torch_fl.flagos._utils import Device, _get_device_index
from torch_fl.flagos.devices import current_device, set_device

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

Stream = torch.Stream
Event = torch.Event


def _stream_of(device: Device, stream_id: int | None) -> torch.Stream:
    """Return a device's stream by PyTorch's id of it, or its default stream."""
    init()
    index = _get_device_index(device, optional=True)
    default_id, device_type = _default_stream(index)
    return torch.Stream(
        stream_id=default_id if stream_id is None else stream_id, device_index=index, device_type=device_type
    )


def current_stream(device: Device = None) -> torch.Stream:
    """Return the calling thread's current stream of a device."""
    init()
    stream: torch.Stream = torch.accelerator.current_stream(_get_device_index(device, optional=True))
    return stream


def default_stream(device: Device = None) -> torch.Stream:
    """Return a device's default stream."""
    return _stream_of(device, None)


def get_stream_from_external(data_ptr: int, device: Device = None) -> torch.Stream:
    """Return the stream of the vendor's runtime that `data_ptr` points to, which another library has made.

    It belongs to that library, which keeps it alive as long as it is used here. PyTorch names such a stream by its
    address, a default stream by 0 (c10/cuda/CUDAStream.cpp, which the vendors' forks keep).

    Raises:
        ValueError: an odd address, which no stream has, and which PyTorch would take for one of its own streams.
    """
    if data_ptr % 2:
        raise ValueError(f"flagos: {data_ptr:#x} is no stream of the vendor's runtime; such an address is even")
    return _stream_of(device, data_ptr)


def ExternalStream(stream_ptr: int, device: Device = None) -> torch.Stream:  # noqa: N802 - torch.cuda's name for it
    """Return `get_stream_from_external` of a stream, by the name and the argument of `torch.cuda`."""
    return get_stream_from_external(stream_ptr, device)


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream, and its device, the calling thread's current ones; None changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """A context in which a stream, and its device, are current; None changes nothing.

    Afterwards the device that was current before is so again, and so is the stream that was current on the stream's
    device.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._before: list[tuple[int, torch.Stream]] = []

    def __enter__(self) -> Self:
        if self.stream is not None:
            self._before.append((current_device(), current_stream(self.stream.device)))
            set_stream(self.stream)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.stream is not None:
            device, stream = self._before.pop()
            set_stream(stream)
            set_device(device)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context in which a stream, and its device, are current; None changes nothing."""
    return StreamContext(stream)
