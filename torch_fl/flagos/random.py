"""Random numbers: each device's default generator is the vendor's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import torch

from torch_fl._C import _default_generator, _device_count
from torch_fl.flagos._lazy import init, lazy_call
from torch_fl.flagos._utils import Device, _get_device_index


class _DefaultGenerators(Sequence[torch.Generator]):
    """The default generators of all devices, made when first asked for."""

    def __len__(self) -> int:
        return int(_device_count())

    @overload
    def __getitem__(self, index: int) -> torch.Generator: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[torch.Generator, ...]: ...

    def __getitem__(self, index: int | slice) -> torch.Generator | tuple[torch.Generator, ...]:
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return tuple(self[position] for position in positions)
        init()
        generator: torch.Generator = _default_generator(positions)
        return generator


default_generators: Sequence[torch.Generator] = _DefaultGenerators()


def _generator(device: Device) -> torch.Generator:
    return default_generators[_get_device_index(device, optional=True)]


def manual_seed(seed: int) -> None:
    """Seed the current device's default generator; without an initialised device, right after its initialisation."""
    number = int(seed)
    lazy_call(lambda: _seed(None, number))


def manual_seed_all(seed: int) -> None:
    """Seed the default generators of all devices; without an initialised device, right after its initialisation."""
    number = int(seed)
    lazy_call(lambda: _seed_all(number))


def _seed(device: Device, number: int) -> None:
    _generator(device).manual_seed(number)


def _seed_all(number: int) -> None:
    for generator in default_generators:
        generator.manual_seed(number)


def seed() -> None:
    """Seed the current device's default generator with a number that differs each time."""
    lazy_call(lambda: _generator(None).seed() and None)


def seed_all() -> None:
    """Seed the default generators of all devices with one number that differs each time."""
    lazy_call(lambda: _seed_all(torch.Generator().seed()))


def initial_seed() -> int:
    """Return the seed of the current device's default generator."""
    init()
    return int(_generator(None).initial_seed())


def get_rng_state(device: Device = "flagos") -> torch.Tensor:
    """Return the state of a device's default generator, as bytes on the CPU."""
    init()
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all devices' default generators."""
    return [get_rng_state(index) for index in range(len(default_generators))]


def set_rng_state(new_state: torch.Tensor, device: Device = "flagos") -> None:
    """Set the state of a device's default generator."""
    state = new_state.clone(memory_format=torch.contiguous_format)
    lazy_call(lambda: _set_state(state, device))


def _set_state(state: torch.Tensor, device: Device) -> None:
    _generator(device).set_state(state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of the first devices' default generators, in order."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
