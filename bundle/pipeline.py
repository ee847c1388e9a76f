"""The stages in order, over one request: what `inv` and `nox` start and the command line parses."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bundle.backends import CoreSource
from bundle.compile import CompileInputs, build_python, compile_stage
from bundle.errors import NothingBundledError
from bundle.interpreters import package_folder
from bundle.proc import run
from bundle.stock import resolve
from bundle.verify import VerifyInputs, latest_wheel, verify_stage, write_report
from bundle.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bundle.backends import Backend
    from bundle.stock import StockTorch
    from bundle.ui import Reporter
    from bundle.verify import Verification


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asked for; unset paths are discovered by the stage that needs them."""

    backend: Backend
    forged: bool = False
    vendor_torch: Path | None = None
    vendor_version: str | None = None
    sdk_root: Path | None = None
    target_sdk_root: Path | None = None
    core: CoreSource | None = None
    label: str | None = None
    wheel: Path | None = None
    workers: int = 0
    pytest_arguments: tuple[str, ...] = ()

    @property
    def workspace(self) -> Workspace:
        """Return the folders of this request."""
        return Workspace(backend=self.backend.name, forged=self.forged)


@dataclass(frozen=True, kw_only=True)
class ForgedVendor:
    """A vendor-shaped installation, as `tests.forge` describes it."""

    torch: Path
    sdk_root: Path
    environment: tuple[tuple[str, str], ...]
    driver_dirs: tuple[Path, ...]
    find_links: Path | None


def stock_torch(request: Request, environ: Mapping[str, str], ui: Reporter) -> StockTorch:
    """Return the stock torch of this request."""
    return resolve(request.backend, forged=request.forged, environ=environ, ui=ui)


def forge_vendor(request: Request, stock: StockTorch, environ: Mapping[str, str], ui: Reporter) -> ForgedVendor:
    """Make (or reuse) the forged vendor of a backend from stock torch."""
    python = build_python(stock, request.workspace, environ, ui)
    command: list[str | Path] = [sys.executable, "-m", "tests.forge", "--backend", request.backend.name]
    command += ["--stock", package_folder(python, "torch"), "--out", request.workspace.forge]
    with ui.step(f"{request.backend.name}: forge a vendor installation"):
        done = run(command, ui=ui, env=environ, cwd=request.workspace.repository, on_line=ui.progress)
    said = json.loads(done.stdout[done.stdout.rindex("\n{") :] if not done.stdout.startswith("{") else done.stdout)
    return ForgedVendor(
        torch=Path(said["torch"]),
        sdk_root=Path(said["sdk_root"]),
        environment=tuple((key, value) for key, value in said["environment"]),
        driver_dirs=tuple(map(Path, said["driver_dirs"])),
        find_links=Path(said["find_links"]) if said["find_links"] else None,
    )
