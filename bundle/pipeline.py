"""The stages in order, over one request: what `inv` and `nox` start and the command line parses."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bundle.audit import audit
from bundle.backends import CoreSource
from bundle.bundling import BundleFacts, bundle_stage
from bundle.compile import CompileInputs, build_python, compile_stage
from bundle.errors import InputNotFoundError, MalformedError, NothingBundledError
from bundle.gather import gather, read_stock
from bundle.interpreters import find_interpreter, package_folder
from bundle.patch import find_patchelf
from bundle.plan import plan_bundle
from bundle.proc import run
from bundle.repack import RepackInputs, repack_stage
from bundle.sdk import resolve_sdk
from bundle.stock import resolve
from bundle.vendor import check_python, find_vendor_torch, installed_candidates
from bundle.verify import VerifyInputs, finished_wheel, verify_stage
from bundle.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bundle.audit import AuditReport
    from bundle.backends import Backend
    from bundle.plan import BundlePlan
    from bundle.reports import Verification
    from bundle.stock import StockTorch
    from bundle.ui import Reporter


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asked for; unset paths are discovered by the stage that needs them."""

    backend: Backend
    forged: bool = False
    python: str | None = None
    vendor_torch: Path | None = None
    vendor_version: str | None = None
    sdk_root: Path | None = None
    target_sdk_root: Path | None = None
    core: CoreSource | None = None
    label: str | None = None
    wheel: Path | None = None
    workers: int = 0
    strategy: str | None = None
    suite: str = "full"
    pytest_arguments: tuple[str, ...] = ()

    @property
    def workspace(self) -> Workspace:
        """Return the folders of this request."""
        return Workspace(backend=self.backend.name, forged=self.forged)

    @property
    def version_label(self) -> str:
        """Return the local version label: the one asked for, else the backend's; a forged wheel always says so."""
        label = self.backend.label if self.label is None else self.label
        return ".".join(part for part in (label, "forged" if self.forged else "") if part)


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
    python = request.python or request.backend.python
    return resolve(
        request.backend,
        python=python,
        forged=request.forged,
        environ=environ,
        ui=ui,
        memory=request.workspace.environments / ".offers.json",
    )


def forge_vendor(request: Request, stock: StockTorch, environ: Mapping[str, str], ui: Reporter) -> ForgedVendor:
    """Make (or reuse) the forged vendor of a backend from stock torch.

    Raises:
        ToolError: the forge failed; its own words are quoted.
    """
    python = build_python(stock, request.workspace, environ, ui)
    command: list[str | Path] = [sys.executable, "-m", "tests.forge", "--backend", request.backend.name]
    command += ["--stock", package_folder(python, "torch"), "--out", request.workspace.forge]
    with ui.step(f"{request.backend.name}: forge a vendor installation"):
        done = run(command, ui=ui, env=environ, cwd=request.workspace.repository, on_line=ui.progress)
    # Progress comes first; the description is the one object at the end.
    start = done.stdout.rfind("\n{") + 1
    try:
        said = json.loads(done.stdout[start:])
    except ValueError as err:
        raise MalformedError(f"tests.forge did not describe what it made: {done.stdout[-500:]!r}") from err
    return ForgedVendor(
        torch=Path(said["torch"]),
        sdk_root=Path(said["sdk_root"]),
        environment=tuple((key, value) for key, value in said["environment"]),
        driver_dirs=tuple(map(Path, said["driver_dirs"])),
        find_links=Path(said["find_links"]) if said["find_links"] else None,
    )


def _vendor_prefixes(backend: Backend, environ: Mapping[str, str]) -> list[Path]:
    """Return where a vendor's torch may be installed: the active environment, and the Python this backend is for."""
    named = [Path(environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    try:
        interpreter = find_interpreter(backend.python, environ)
    except InputNotFoundError:
        return named
    return [*named, interpreter.resolve().parent.parent]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan, and what the manifest says besides it."""

    plan: BundlePlan
    facts: BundleFacts


def plan(request: Request, stock: StockTorch, environ: Mapping[str, str], ui: Reporter) -> Planned:
    """Find vendor torch and SDK, and decide what the bundle holds; nothing of the bundle is written."""
    variables = dict(environ)
    vendor_torch, sdk_root = request.vendor_torch, request.sdk_root
    if request.forged:
        forged = forge_vendor(request, stock, environ, ui)
        variables.update(forged.environment)
        vendor_torch, sdk_root = forged.torch, forged.sdk_root
    vendor = find_vendor_torch(
        request.backend,
        variables,
        explicit=vendor_torch,
        search=installed_candidates(_vendor_prefixes(request.backend, environ)),
        declared_version=request.vendor_version,
    )
    target_root = str(request.target_sdk_root) if request.target_sdk_root else None
    sdk = resolve_sdk(request.backend, variables, explicit=sdk_root, target_root=target_root)
    python = build_python(stock, request.workspace, environ, ui)
    facts = read_stock(package_folder(python, "torch") / "lib", stock.version)
    with ui.step(f"{request.backend.name}: read {vendor.lib} and plan"):
        inputs = gather(request.backend, vendor, sdk, facts, environ=variables, core=request.core)
        made = plan_bundle(inputs)
    tag = f"cp{stock.python.replace('.', '')}"
    if (request.core or request.backend.core) is CoreSource.VENDOR:
        check_python(request.backend, vendor, tag)
    about = BundleFacts(
        torch=stock.base_version,
        python=tag,
        label=request.version_label,
        forged=request.forged,
    )
    return Planned(plan=made, facts=about)


def bundle(request: Request, stock: StockTorch, environ: Mapping[str, str], ui: Reporter) -> Path:
    """Run the bundle stage and return its folder."""
    planned = plan(request, stock, environ, ui)
    out = request.workspace.bundle
    bundle_stage(planned.plan, planned.facts, out, patchelf=find_patchelf(environ), ui=ui)
    return out


def compile_wheel(request: Request, stock: StockTorch, environ: Mapping[str, str], ui: Reporter) -> Path:
    """Run the compile stage and return the thin wheel."""
    inputs = CompileInputs(backend=request.backend, stock=stock, workspace=request.workspace, sdk_root=request.sdk_root)
    return compile_stage(inputs, environ, ui)


def repack(request: Request, ui: Reporter) -> Path:
    """Run the repack stage and return the wheel; one of the same version and Python is replaced.

    Raises:
        NothingBundledError: the compile stage was skipped, or its folder holds more than the one wheel it leaves.
    """
    name, workspace = request.backend.name, request.workspace
    thin = sorted(workspace.compiled.glob("*.whl"))
    if len(thin) != 1:
        found = f"{len(thin)} ({', '.join(wheel.name for wheel in thin)})" if thin else "no"
        what = f"{name}: {found} thin wheel{'s' if thin else ''} in {workspace.compiled}, expected one"
        raise NothingBundledError(what, stage="compile", backend=name)
    inputs = RepackInputs(
        thin_wheel=thin[0],
        bundle_dir=workspace.bundle,
        backend=request.backend,
        version_label=request.version_label,
        dist=workspace.dist,
    )
    return repack_stage(inputs, ui)


def audit_own(wheel: Path, request: Request, ui: Reporter) -> AuditReport:
    """Audit a wheel built here: no path of this repository or its environments may be in it."""
    with ui.step(f"{request.backend.name}: audit {wheel.name}"):
        return audit(wheel, forbidden=(str(request.workspace.repository),))


def build_wheel(request: Request, environ: Mapping[str, str], ui: Reporter) -> Path:
    """Run compile, bundle and repack."""
    stock = stock_torch(request, environ, ui)
    compile_wheel(request, stock, environ, ui)
    bundle(request, stock, environ, ui)
    return repack(request, ui)


def verify(request: Request, environ: Mapping[str, str], ui: Reporter) -> Verification:
    """Verify a wheel, the one in the dist folder unless another is named."""
    stock = stock_torch(request, environ, ui)
    wheel = request.wheel or finished_wheel(request.workspace, request.backend)
    forged = forge_vendor(request, stock, environ, ui) if request.forged else None
    inputs = VerifyInputs(
        backend=request.backend,
        stock=stock,
        workspace=request.workspace,
        wheel=wheel,
        driver_dirs=forged.driver_dirs if forged else (),
        find_links=forged.find_links if forged else None,
        workers=request.workers,
        strategy=request.strategy,
        suite=request.suite,
        pytest_arguments=request.pytest_arguments,
    )
    return verify_stage(inputs, environ, ui)
