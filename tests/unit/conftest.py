"""Fixtures of the unit tests: tiny real ELF files, a silent reporter, the patchelf of this environment, a checkout."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from bundle.ui import Reporter
from tests.support.tiny_elf import ElfSpec

if TYPE_CHECKING:
    from collections.abc import Callable


REPOSITORY = Path(__file__).parents[2]


class MakeElf(Protocol):
    """Write a shared object whose soname is its file name unless told otherwise."""

    def __call__(self, name: str, *, directory: Path | None = None, **spec: Any) -> Path: ...


@pytest.fixture
def make_elf(tmp_path: Path) -> MakeElf:
    """Return a function that writes a tiny ELF file, by default below `tmp_path`."""

    def make(name: str, *, directory: Path | None = None, **spec: Any) -> Path:
        return ElfSpec(**{"soname": name, **spec}).write((directory or tmp_path) / name)

    return make


@pytest.fixture
def patchelf() -> Path:
    """Return the patchelf that the `bundle` dependency group installs."""
    found = shutil.which("patchelf", path=str(Path(sys.executable).parent)) or shutil.which("patchelf")
    assert found, "patchelf is part of the dependency group `tests`"
    return Path(found)


@pytest.fixture
def ui() -> Reporter:
    """Return a reporter that writes to strings: `ui.err.getvalue()`."""
    return Reporter(err=io.StringIO(), out=io.StringIO(), colour=False)


@pytest.fixture
def said(ui: Reporter) -> Callable[[], str]:
    """Return a function that gives what the reporter said so far."""

    def get() -> str:
        assert isinstance(ui.err, io.StringIO)
        return ui.err.getvalue()

    return get


@pytest.fixture
def checkout(tmp_path: Path) -> tuple[Callable[..., subprocess.CompletedProcess[str]], Path]:
    """Return a function that runs `python -m bundle` in a checkout of its own, and the path of its dist folder."""
    root = tmp_path / "checkout"
    for package in ("bundle", "torch_fl_boot"):
        shutil.copytree(REPOSITORY / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bundle", *words]
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)

    return run, root / "dist"
