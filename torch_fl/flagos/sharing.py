"""Memory that flagos and others see: the vendor's own tensors, DLPack, other processes."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.reductions import reduce_storage, reduce_tensor
from torch.utils.dlpack import DLDeviceType

from torch_fl._C import _from_vendor, _to_vendor
from torch_fl.flagos._claim import DEVICE_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable


def to_vendor(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the vendor's own device type, "cuda", over the memory of a dense flagos tensor.

    Nothing is copied. Both tensors keep the memory alive and count versions together, so that autograd notices a change
    made through either. The result is detached, and neither side's storage can be resized any more.

    Raises:
        TypeError: the tensor is on another device, or not dense.
    """
    return _to_vendor(tensor)


def from_vendor(tensor: torch.Tensor) -> torch.Tensor:
    """Return a flagos tensor over the memory of a dense tensor of the vendor's own device type, "cuda".

    The reverse of `to_vendor`, on the same terms; what came from flagos comes back to the same storage.

    Raises:
        TypeError: the tensor is on another device, or not dense.
    """
    return _from_vendor(tensor)


def _refuse_other_process(kind: str) -> None:
    raise RuntimeError(
        f"flagos: cannot send a {kind} on {DEVICE_TYPE} to another process, since handles to device memory "
        "(the vendor's IPC) are not offered; send a copy from the CPU, as in queue.put(tensor.cpu()), and move it to "
        "the device there"
    )


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    if tensor.device.type == DEVICE_TYPE:
        _refuse_other_process("tensor")
    return reduce_tensor(tensor)


def _reduce_storage(storage: torch.UntypedStorage) -> Any:
    if storage.device.type == DEVICE_TYPE:
        _refuse_other_process("storage")
    return reduce_storage(storage)


def refuse_other_processes() -> None:
    """Have multiprocessing's queues and pipes refuse flagos tensors in their own words.

    PyTorch's own refusal, "_share_fd_: only available on CPU", comes from deep within.
    """
    ForkingPickler.register(torch.Tensor, _reduce_tensor)
    ForkingPickler.register(torch.nn.Parameter, _reduce_tensor)
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)


def _with_own_device(
    original: Callable[[torch.Tensor], tuple[Any, int]],
) -> Callable[[torch.Tensor], tuple[Any, int]]:
    def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:  # noqa: N807 - DLPack's name
        if self.device.type == DEVICE_TYPE:
            return DLDeviceType.kDLExtDev, self.device.index
        return original(self)

    return __dlpack_device__


def complete_dlpack() -> None:
    """Let `torch.from_dlpack` take flagos tensors.

    PyTorch exports and imports them as DLPack's extension device, but knows them here only by a name that no
    PrivateUse1 device has ("privateuse1", torch/_tensor.py, 2.10 to 2.13).
    """
    torch.Tensor.__dlpack_device__ = _with_own_device(torch.Tensor.__dlpack_device__)
