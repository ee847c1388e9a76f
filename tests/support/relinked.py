"""Relinking the site-packages of tiny libraries, and looking at what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.soak.monitor import CORE, origins
from torch_fl_boot.manifest import read_build_record, read_manifest
from torch_fl_boot.relink import Condition, Outcome, relink, restore, state
from torch_fl_boot.stock import StockTorch, read_version

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fake_torch import FakeSite

MAPS = "import torch; print(open('/proc/self/maps').read())"


def do_relink(site: FakeSite) -> Outcome:
    package, torch = site.root / "torch_fl", site.root / "torch"
    manifest = read_manifest(package, read_build_record(package))
    assert manifest is not None
    stock = StockTorch(package=torch, version=read_version(torch) or "")
    return relink(manifest, package, stock, notify=pytest.fail)


def do_restore(site: FakeSite) -> Outcome:
    return restore(site.root / "torch", notify=pytest.fail)


def condition(site: FakeSite) -> Condition:
    return state(site.root / "torch").condition


def core_of(site: FakeSite) -> set[str]:
    """The folders that a process which only imports torch takes the core from."""
    done = site.run(MAPS)
    assert done.returncode == 0, done.stderr
    found = origins(done.stdout)
    assert set(found) == set(CORE)
    return set(found.values())


def backup(site: FakeSite) -> Path:
    return site.torch_lib / "_orig_backup"


def renew(path: Path, data: bytes) -> None:
    """Replace the file as installers do, by removing and writing."""
    path.unlink()
    path.write_bytes(data)
