"""Fixtures of the end-to-end tests: a stock torch, and the vendors that are forged from it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bundle.backends import BACKENDS, METAX
from bundle.compile import build_python
from bundle.interpreters import package_folder
from bundle.pipeline import Request
from bundle.pipeline import stock_torch as stock_torch_of
from bundle.ui import Reporter
from tests.e2e.wheels import built_wheel, installed, stock_site
from tests.forge import ForgedVendor, Variant

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["built_wheel", "installed", "stock_site"]

REPOSITORY = Path(__file__).parents[2]
VARIABLE = "FLAGOS_TEST_STOCK_TORCH"


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in the same hook, too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all tests on finished wheels to one process, and all others to another, if there are two (xdist).

    What a session's tests share takes minutes to build, and only one process at a time may build in a folder.
    """
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            of_wheels = {"built_wheel", "installed"} & set(getattr(item, "fixturenames", ()))
            item.add_marker(pytest.mark.xdist_group("wheels" if of_wheels else "vendors"))


@dataclass(frozen=True)
class StockEnvironment:
    """A stock torch package and the interpreter of the environment that it is installed in."""

    package: Path
    python: Path


def _stock_package() -> Path:
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    # The pipeline's own environment, made on first use.
    request, ui = Request(backend=METAX, forged=True), Reporter()
    python = build_python(stock_torch_of(request, os.environ, ui), request.workspace, os.environ, ui)
    return package_folder(python, "torch")


@pytest.fixture(scope="session")
def stock_torch() -> StockEnvironment:
    """Return the stock torch that FLAGOS_TEST_STOCK_TORCH names, else the one that forged wheels are built with."""
    package = _stock_package().absolute()
    # .../lib/python3.X/site-packages/torch
    python = package.parents[3] / "bin" / "python"
    missing = [path for path in (package / "lib" / "libtorch_cpu.so", python) if not path.exists()]
    if missing:
        pytest.fail(f"{VARIABLE} must name the torch folder of an environment; {package}: no {missing[0]}")
    return StockEnvironment(package=package, python=python)


def forge_by_command(stock: Path, backend: str, out: Path, variant: Variant = Variant.FULL) -> ForgedVendor:
    """Forge a vendor as the pipeline does, in a process of its own, and return what it says."""
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "tests.forge",
        "--backend",
        backend,
        "--stock",
        stock,
        "--out",
        out,
    ]
    done = subprocess.run(
        [*command, "--variant", variant.value], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    return ForgedVendor(
        torch=Path(said["torch"]),
        sdk_root=Path(said["sdk_root"]),
        environment=tuple((key, value) for key, value in said["environment"]),
        driver_dirs=tuple(map(Path, said["driver_dirs"])),
        find_links=Path(said["find_links"]) if said["find_links"] else None,
    )


@pytest.fixture(scope="session")
def forged(stock_torch: StockEnvironment) -> Callable[..., ForgedVendor]:
    """Return a function that forges a vendor by name; trees are kept below build/ and reused while they are current.

    They are the pipeline's own, unless a stock torch was named, of which these must not be made anew.
    """
    folder, prefix = REPOSITORY / "build" / "forge", "tests-" if os.environ.get(VARIABLE) else ""

    @functools.cache
    def make(backend: str, variant: Variant = Variant.FULL) -> ForgedVendor:
        name = backend if variant is Variant.FULL else f"{backend}-{variant.value}"
        return forge_by_command(stock_torch.package, backend, folder / f"{prefix}{name}", variant)

    return make


@pytest.fixture(scope="session")
def forge_again(stock_torch: StockEnvironment) -> Callable[[str, Path], ForgedVendor]:
    """Return a function that forges a vendor into a given folder, whatever was forged before."""
    return lambda backend, out: forge_by_command(stock_torch.package, backend, out)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Return the name of each backend in turn."""
    return str(request.param)


@pytest.fixture
def vendor(forged: Callable[..., ForgedVendor], backend: str) -> ForgedVendor:
    """Return the forged vendor of each backend in turn."""
    return forged(backend)
