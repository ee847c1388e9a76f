"""Sample inputs: how many are taken, and how they come to the device with strides, offsets and shared storage kept."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch.testing._internal.opinfo.core import SampleInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sweeps.cases import Case

# Databases yield up to thousands of samples for an operator: this many are made, and some taken at equal distances.
MADE = 60
TAKEN = 6
# Beyond this size, one sample in single precision costs the CPU more than all others together.
LARGEST = 200_000
# Beside the CPU, where the samples are made, the databases name cuda:0 of a machine that has one.
DEVICE_NAME = re.compile(r"cpu|cuda(:\d+)?")
# By the number of dimensions.
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor of a nested value, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def tensors_of(sample: SampleInput) -> list[torch.Tensor]:
    """Return every tensor of a sample, in the order of the operator's arguments."""
    return list(tensors_in([sample.input, sample.args, sample.kwargs]))


def spread(items: Sequence[Any], count: int) -> list[Any]:
    """Return `count` items at equal distances, the first and the last among them; all of them if there are fewer."""
    if len(items) <= count:
        return list(items)
    step = (len(items) - 1) / (count - 1)
    return [items[round(index * step)] for index in range(count)]


def samples_of(case: Case, *, count: int = TAKEN, requires_grad: bool = False) -> list[SampleInput]:
    """Return some of PyTorch's samples for an operator, on the CPU; the same ones each time."""
    made = list(islice(case.op.sample_inputs("cpu", case.dtype, requires_grad=requires_grad), MADE))
    small = [sample for sample in made if sum(tensor.numel() for tensor in tensors_of(sample)) <= LARGEST]
    return spread(small or made[:1], count)


def channels_last(sample: SampleInput) -> SampleInput | None:
    """Return a sample with its images and volumes in channels-last format; None if it has none."""

    def changed(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.contiguous(memory_format=CHANNELS_LAST[value.dim()]) if value.dim() in CHANNELS_LAST else value
        return type(value)(map(changed, value)) if type(value) in (list, tuple) else value

    if not any(tensor.dim() in CHANNELS_LAST for tensor in tensors_of(sample)):
        return None
    kwargs = {key: changed(value) for key, value in sample.kwargs.items()}
    return SampleInput(
        changed(sample.input),
        args=changed(sample.args),
        kwargs=kwargs,
        output_process_fn_grad=sample.output_process_fn_grad,
        broadcasts_input=sample.broadcasts_input,
        name=sample.name,
    )


class Mover:
    """Copies values to a device; tensors over one storage come to lie over one storage there."""

    def __init__(self, device: torch.device, *, dtype: torch.dtype | None = None) -> None:
        self._device = device
        self._dtype = dtype
        self._storages: dict[int, torch.Tensor] = {}
        self._alive: list[torch.Tensor] = []

    def __call__(self, value: Any) -> Any:
        """Return a copy of a nested value; a device, or its name, becomes this one; all else stays as it is."""
        if isinstance(value, torch.Tensor):
            return self._move(value)
        if type(value) in (list, tuple):
            return type(value)(self(item) for item in value)
        if type(value) is dict:
            return {key: self(item) for key, item in value.items()}
        return self._other(value)

    def _other(self, value: Any) -> Any:
        if isinstance(value, torch.device):
            return self._device
        if isinstance(value, torch.Generator):
            return torch.Generator(self._device).manual_seed(value.initial_seed())
        return str(self._device) if isinstance(value, str) and DEVICE_NAME.fullmatch(value) else value

    def sample(self, sample: SampleInput) -> SampleInput:
        """Return a copy of a sample."""
        return SampleInput(
            self(sample.input),
            args=self(sample.args),
            kwargs=self(sample.kwargs),
            output_process_fn_grad=sample.output_process_fn_grad,
            broadcasts_input=sample.broadcasts_input,
            name=sample.name,
        )

    def _move(self, tensor: torch.Tensor) -> torch.Tensor:
        moved = self._moved_data(tensor.detach())
        return moved.requires_grad_(tensor.requires_grad)

    def _moved_data(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided:
            return tensor.to(self._device)
        if tensor.is_conj():
            return self._moved_data(tensor.conj()).conj()
        if tensor.is_neg():
            return self._moved_data(tensor._neg_view())._neg_view()
        return self._base(tensor).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def _base(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the whole storage of a tensor as a flat one on the device."""
        storage = tensor.untyped_storage()
        known = self._storages.get(storage._cdata)
        if known is not None and known.dtype == (self._dtype or tensor.dtype):
            return known
        whole = (storage.nbytes() // tensor.element_size(),)
        flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, 0, whole, (1,)).cpu()
        target = self._dtype if self._dtype is not None and tensor.is_floating_point() else tensor.dtype
        moved = torch.empty(flat.shape, dtype=target, device=self._device).copy_(flat)
        self._storages[storage._cdata] = moved
        self._alive.append(tensor)
        return moved


class VendorMover(Mover):
    """Copies values to the vendor's own device, through `device`, which is flagos'."""

    def _move(self, tensor: torch.Tensor) -> torch.Tensor:
        # Without autograd, which native tensors cannot have in a process that has flagos.
        return torch.flagos.to_vendor(self._moved_data(tensor.detach()))
