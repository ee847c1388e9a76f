"""Modules of PyTorch's module database as test cases."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db

from sweeps.compare import least_tolerance, overrides_among
from sweeps.samples import MADE, spread

TAKEN = 5
DTYPES = (torch.float32, torch.float64)
# The module database's own comparison of devices.
THEIR_TEST = ("TestModule", "test_cpu_gpu_parity")


@dataclass(frozen=True, kw_only=True)
class ModuleCase:
    """One module with one data type."""

    info: Any
    dtype: torch.dtype

    @property
    def id(self) -> str:
        return f"{self.info.name}-{str(self.dtype).removeprefix('torch.')}"


MODULES = tuple(ModuleCase(info=info, dtype=dtype) for info in module_db for dtype in DTYPES if dtype in info.dtypes)


def inputs_of(case: ModuleCase, *, training: bool) -> list[Any]:
    """Return some of the database's inputs, on the CPU; the same ones each time."""
    given = {"device": "cpu", "dtype": case.dtype, "requires_grad": True, "training": training}
    made = islice(case.info.module_inputs_func(case.info, **given), MADE)
    taken: list[Any] = spread([sample for sample in made if sample.forward_input is not None], TAKEN)
    return taken


def make_module(case: ModuleCase, sample: Any) -> torch.nn.Module:
    """Return a module on the CPU; one whose shape follows from its input has seen that input."""
    given = sample.constructor_input
    module = case.info.module_cls(*given.args, **given.kwargs).to(case.dtype)
    if case.info.is_lazy:
        module(*sample.forward_input.args, **sample.forward_input.kwargs)
    return module


def is_random_module(module: torch.nn.Module, *, training: bool) -> bool:
    """Whether dropout, somewhere inside, or random regions make the output differ from call to call."""
    if isinstance(module, (torch.nn.FractionalMaxPool2d, torch.nn.FractionalMaxPool3d)):
        return True
    chances = [getattr(part, "p", 0.0) or getattr(part, "dropout", 0.0) for part in module.modules()]
    return training and (
        any(isinstance(chance, float) and chance > 0 for chance in chances) or isinstance(module, torch.nn.RReLU)
    )


def tolerance_of_module(case: ModuleCase, *, software: bool) -> dict[str, float]:
    """Return rtol and atol, as for operators; the database's own override counts."""
    decorators = case.info.get_decorators(*THEIR_TEST, "cuda", case.dtype, {})
    granted = overrides_among(decorators, case.dtype)
    tolerance: dict[str, float] = least_tolerance(case.dtype, granted, same_kernels=software)
    return tolerance
