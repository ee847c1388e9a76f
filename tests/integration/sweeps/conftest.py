"""Parametrizes the sweeps, and marks what is expected to fail."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest
import torch

from sweeps.cases import catalogue
from sweeps.expected import Machine, find_entry, read_entries
from sweeps.running import Sides
from sweeps.selection import sweep_of

SWEEP_SEED = 7


def machine() -> Machine:
    """Describe this machine; a software device says so in its name."""
    major, minor = torch.__version__.split(".")[:2]
    software = torch.flagos.device_count() > 0 and "(software)" in torch.flagos.get_device_name(0)
    return Machine(torch=(int(major), int(minor)), software=software)


def is_core(config: pytest.Config) -> bool:
    return bool(config.getoption("--suite") == "core")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    kind = sweep_of(metafunc.function)
    if kind is None:
        return
    found = catalogue(kind, software=machine().software, core=is_core(metafunc.config))
    metafunc.parametrize("case", [pytest.param(case, id=case.id) for case in found])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    entries, here = read_entries(), machine()
    for item in items:
        kind = sweep_of(getattr(item, "function", None))
        if kind is None:
            continue
        name = f"{kind}/{item.callspec.id}"  # type: ignore[attr-defined]  # parametrized items have it
        entry = find_entry(entries, name, here)
        if entry is not None:
            item.add_marker(pytest.mark.xfail(reason=entry.reason, strict=True, run=not entry.crashes))


@pytest.fixture(scope="session")
def sides(device: torch.device) -> Sides:
    return Sides(device=device, software=machine().software)


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
