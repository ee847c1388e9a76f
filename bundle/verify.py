"""Verification: a fresh environment, stock torch, the wheel, and the integration suite run from a temporary folder.

Nothing of the caller's shell reaches in: PYTHONPATH, LD_* and the repository are out of reach. Where a vendor was
forged, its SDK's driver folders stand in LD_LIBRARY_PATH, as a sourced SDK script would put them; the result says so.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from bundle.audit import audit
from bundle.checks import PACKAGE
from bundle.compile import environment_size
from bundle.errors import InputNotFoundError, NothingBundledError, RefusedError, about
from bundle.interpreters import LEAKS, create_environment, package_folder, pip_install
from bundle.manifest import BUNDLE_FILE, Manifest, read_manifest
from bundle.reports import Verification
from bundle.scratch import scratch_folder, temporary_variables
from bundle.selection import selecting_variables
from bundle.space import SLACK, require_temporary
from bundle.stock import install_stock
from bundle.testrun import Counts, Verdict, judge, read_report
from bundle.verify_checks import (
    Facts,
    Installed,
    check_doctor,
    check_libraries,
    check_origins,
    measure_accuracy,
    probe,
    run_suite,
)
from bundle.wheelfile import open_wheel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bundle.backends import Backend
    from bundle.stock import StockTorch
    from bundle.ui import Reporter
    from bundle.workspace import Workspace

# Of a hundred operators with a kernel of the vendor's, so many must run in the full suite.
LEAST_OPERATORS = 85.0
FOREIGN_PREFIXES = ("FLAGOS_", "TORCH", "PYTORCH", "PYTHON", "LD_", "PYTEST_")
FOREIGN = selecting_variables() | {"GEMS_VENDOR"}


@dataclass(frozen=True, kw_only=True)
class VerifyInputs:
    """What one verification reads. `driver_dirs` go on LD_LIBRARY_PATH; `find_links` is a folder of local wheels.

    `strategy` is how the core gets in front of stock torch, or None for the wheel's own default.
    """

    backend: Backend
    stock: StockTorch
    workspace: Workspace
    wheel: Path
    driver_dirs: tuple[Path, ...] = ()
    find_links: Path | None = None
    workers: int = 2
    strategy: str | None = None
    suite: str = "full"
    pytest_arguments: tuple[str, ...] = ()


def finished_wheel(workspace: Workspace, backend: Backend) -> Path:
    """Return this backend's one wheel in the dist folder.

    Raises:
        InputNotFoundError: none, or several, of them.
    """
    label = ".".join(part for part in (backend.label, "forged" if workspace.forged else "") if part)
    pattern = f"torch_fl-*+{label}*-cp*.whl" if label else "torch_fl-*-cp*.whl"
    found = [path for path in sorted(workspace.dist.glob(pattern)) if label or "+" not in path.name]
    if len(found) != 1:
        names = f": {', '.join(path.name for path in found)}" if found else ""
        error = InputNotFoundError(
            f"{backend.name}: {len(found)} wheels in {workspace.dist} fit {pattern}, expected one{names}"
        )
        first = "" if found else f"run `inv wheel --backend {backend.name}` first, or "
        error.hint = f"{first}name the wheel"
        raise error
    return found[0]


def check_wheel(wheel: Path, workspace: Workspace) -> None:
    """Ask a wheel whether it is the one to verify, before an environment is made for it.

    Raises:
        InputNotFoundError: no such file.
        MalformedError: the file is no wheel, or its manifest cannot be read.
        NothingBundledError: a thin wheel.
        RefusedError: another backend's wheel, or a forged one where a real one was meant, or the reverse.
    """
    name = f"{PACKAGE}/{BUNDLE_FILE}"
    with open_wheel(wheel) as view:
        if name not in view.archive.namelist():
            what = f"{wheel.name} holds no {name}: the bundle and repack stages were skipped"
            raise NothingBundledError(what, stage="wheel", backend=workspace.backend)
        manifest = Manifest.from_json(view.read(name).decode(errors="replace"), origin=f"{wheel.name}: {name}")
    found = (manifest.backend, "forged" if manifest.forged else "real")
    expected = (workspace.backend, "forged" if workspace.forged else "real")
    if found != expected:
        raise RefusedError(
            f"{wheel.name} is of backend {found[0]} ({found[1]} vendor); expected {expected[0]} ({expected[1]} vendor)",
            hint=f"name it with --backend {manifest.backend}{' --forged' if manifest.forged else ''}",
        )


def clean_environment(environ: Mapping[str, str], inputs: VerifyInputs) -> dict[str, str]:
    """Return the environment that the installed wheel runs in: the caller's devices stay, its paths do not."""
    kept = {
        key: value
        for key, value in environ.items()
        if key not in (*LEAKS, *FOREIGN) and not key.startswith(FOREIGN_PREFIXES)
    }
    # Workers that each start a full thread pool are slower than one.
    threads = str(max(1, len(os.sched_getaffinity(0)) // inputs.workers))
    kept.update(OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads)
    if inputs.strategy:
        kept["FLAGOS_CORE"] = inputs.strategy
    if inputs.driver_dirs:
        kept["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, inputs.driver_dirs))
    return kept


def _install(inputs: VerifyInputs, folder: Path, environ: Mapping[str, str], ui: Reporter) -> Installed:
    name, stock = inputs.backend.name, inputs.stock
    project = inputs.workspace.repository / "pyproject.toml"
    python = create_environment(folder / "env", stock.python, environ, ui)
    with ui.step(f"{name}: install {stock.requirement} and the test tools"):
        install_stock(python, stock, environ, ui)
        pip_install(python, ["--group", f"{project}:verify"], environ, ui)
    with ui.step(f"{name}: install {inputs.wheel.name}"):
        links = ("--find-links", str(inputs.find_links)) if inputs.find_links else ()
        pip_install(python, [*links, inputs.wheel], environ, ui)
    package = package_folder(python, "torch_fl")
    return Installed(
        python=python,
        package=package,
        manifest=read_manifest(package / BUNDLE_FILE),
        environ=clean_environment(environ, inputs),
        folder=folder,
    )


def _audit(inputs: VerifyInputs, folder: Path, ui: Reporter) -> list[str]:
    """Audit before the environment is made: what either takes of the disk, the other does not have to find free."""
    with ui.step(f"{inputs.backend.name}: audit the wheel"):
        forbidden = (str(inputs.workspace.repository), str(folder))
        return [f"audit: {finding}" for finding in audit(inputs.wheel, forbidden=forbidden).findings]


def _static_problems(inputs: VerifyInputs, installed: Installed, ui: Reporter) -> tuple[Facts, list[str]]:
    name = inputs.backend.name
    with ui.step(f"{name}: ldd, doctor, import"):
        problems = list(check_libraries(installed))
        problems += check_doctor(installed)
        facts = probe(installed)
        problems += check_origins(facts, installed)
        if inputs.strategy not in (None, facts.strategy):
            problems.append(f"the tests ran under {facts.strategy}; asked for {inputs.strategy}")
    if not facts.devices:
        ui.warning(f"{name}: no device answers on this machine; only the tests that need none are run")
    return facts, problems


def _run_tests(inputs: VerifyInputs, installed: Installed, *, devices: int, ui: Reporter) -> Verdict:
    suite = inputs.workspace.repository / "tests" / "integration"
    needed = ("--suite", inputs.suite, "--count-operators") if devices else ("--no-device",)
    with ui.step(f"{inputs.backend.name}: integration suite ({inputs.suite}), {inputs.workers} workers"):
        report = run_suite(installed, suite, [*needed, *inputs.pytest_arguments], workers=inputs.workers, ui=ui)
    whole = devices and inputs.suite == "full" and not inputs.pytest_arguments
    return judge(
        read_report(report),
        inputs.backend.known_aborts if devices else (),
        least_percent=LEAST_OPERATORS if whole else None,
    )


def _needed(inputs: VerifyInputs) -> int:
    """Return the bytes of the environment to verify in, the unpacked wheel with it."""
    with open_wheel(inputs.wheel) as view:
        unpacked = sum(entry.size for entry in view.files)
    return environment_size(inputs.stock, inputs.workspace) + unpacked + SLACK


def verify_stage(inputs: VerifyInputs, environ: Mapping[str, str], ui: Reporter) -> Verification:
    """Verify one wheel. A finding is part of the result; only a check that could not run raises.

    Raises:
        ToolError: the environment could not be made, or the import failed.
        RefusedError: pytest left no report, or as `check_wheel` raises.
        NoSpaceError: too little space for temporary files.
    """
    check_wheel(inputs.wheel, inputs.workspace)
    with scratch_folder(f"torch_fl-verify-{inputs.backend.name}-") as folder, about(folder):
        require_temporary(f"{inputs.backend.name}: the verification", _needed(inputs))
        temporary = folder / "tmp"
        temporary.mkdir()
        problems = _audit(inputs, folder, ui)
        # What the processes of the suite leave, killed ones above all, goes with the folder.
        installed = _install(inputs, folder, {**environ, **temporary_variables(temporary)}, ui)
        facts, found = _static_problems(inputs, installed, ui)
        problems += found
        verdict = _run_tests(inputs, installed, devices=facts.devices, ui=ui)
        accuracy: dict[str, float] = {}
        if facts.devices:
            accuracy, inaccurate = measure_accuracy(installed, mm_tolerance=inputs.backend.mm_tolerance)
            problems += inaccurate
    problems += verdict.problems
    counts = {field.name: getattr(verdict, field.name) for field in fields(Counts)}
    return Verification(
        backend=inputs.backend.name,
        forged=installed.manifest.forged,
        wheel=inputs.wheel.name,
        wheel_bytes=inputs.wheel.stat().st_size,
        bundle_files=len(installed.manifest.files),
        devices=facts.devices,
        torch=facts.torch,
        strategy=facts.strategy,
        suite=inputs.suite,
        pytest_arguments=inputs.pytest_arguments,
        accuracy=accuracy,
        problems=tuple(problems),
        **counts,
    )
