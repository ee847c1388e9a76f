"""Fixtures: finished wheels of forged vendors, and environments that hold them."""

from __future__ import annotations

import functools
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from bundle.backends import BACKENDS
from bundle.interpreters import create_environment, package_folder, pip_install
from bundle.pipeline import Request, build_wheel, forge_vendor, stock_torch
from bundle.stock import install_stock
from bundle.ui import Reporter
from tests.e2e.pipeline import REPOSITORY, Site, link_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bundle.stock import StockTorch


def _request(backend: str) -> Request:
    return Request(backend=BACKENDS[backend], forged=True)


@pytest.fixture(scope="session")
def built_wheel() -> Callable[[str], Path]:
    """Return a function that builds a forged wheel by all stages, incrementally, once a session."""

    @functools.cache
    def build(backend: str) -> Path:
        return build_wheel(_request(backend), os.environ, Reporter())

    return build


@pytest.fixture(scope="session")
def stock_site(tmp_path_factory: pytest.TempPathFactory) -> Callable[[StockTorch], Path]:
    """Return a function that gives a site-packages folder with stock torch and test tools, installed once a session."""

    @functools.cache
    def make(stock: StockTorch) -> Path:
        ui = Reporter()
        python = create_environment(tmp_path_factory.mktemp("stock") / "env", stock.python, os.environ, ui)
        install_stock(python, stock, os.environ, ui)
        pip_install(python, ["--group", f"{REPOSITORY / 'pyproject.toml'}:verify"], os.environ, ui)
        return package_folder(python, "torch").parent

    return make


@pytest.fixture(scope="session")
def installed(
    built_wheel: Callable[[str], Path],
    stock_site: Callable[[StockTorch], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Site]:
    """Return a function that installs a forged wheel beside stock torch, once a session.

    Stock torch's files are hard links, as uv makes them: a gigabyte for all wheels. Tests replace files, they never
    write into them.
    """

    @functools.cache
    def install(backend: str) -> Site:
        ui, wheel = Reporter(), built_wheel(backend)
        request = _request(backend)
        stock = stock_torch(request, os.environ, ui)
        forged = forge_vendor(request, stock, os.environ, ui)
        python = create_environment(tmp_path_factory.mktemp(backend) / "env", stock.python, os.environ, ui)
        site = package_folder(python, "pip").parent
        shutil.rmtree(site)
        link_tree(stock_site(stock), site)
        links = ("--find-links", str(forged.find_links)) if forged.find_links else ()
        pip_install(python, [*links, wheel], os.environ, ui)
        return Site(
            python=python,
            package=package_folder(python, "torch_fl"),
            library_path=os.pathsep.join(map(str, forged.driver_dirs)),
        )

    return install
