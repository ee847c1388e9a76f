"""Parametrizes the sweeps."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest
import torch

from sweeps.cases import catalogue
from sweeps.expected import this_machine
from sweeps.running import Sides
from sweeps.selection import sweep_of

SWEEP_SEED = 7


def is_core(config: pytest.Config) -> bool:
    return bool(config.getoption("--suite") == "core")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    kind = sweep_of(metafunc.function)
    if kind is None:
        return
    found = catalogue(kind, software=this_machine().software, core=is_core(metafunc.config))
    metafunc.parametrize("case", [pytest.param(case, id=case.id) for case in found])


@pytest.fixture(scope="session")
def sides(device: torch.device) -> Sides:
    return Sides(device=device, software=this_machine().software)


@pytest.fixture(autouse=True)
def _same_numbers_each_time() -> None:
    """The database draws from Python's and NumPy's generators as well as from torch's."""
    random.seed(SWEEP_SEED)
    np.random.seed(SWEEP_SEED)  # noqa: NPY002 - the generator that PyTorch's database uses


@pytest.fixture(autouse=True)
def _full_precision():
    """Convolutions in TF32 are the default on some devices; the tolerances are for single precision."""
    # The database locks the plain settings when it is imported; flags() is the way that it leaves.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


assert "torch_fl" in sys.modules  # the outer conftest.py loads it, before torch
