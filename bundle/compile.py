"""The compile stage: sources and stock torch's headers in, a thin wheel out (`build/<backend>/compile/*.whl`)."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bundle.backends import BACKENDS
from bundle.errors import RefusedError, ToolError, UsageError, about
from bundle.interpreters import (
    check_compilers,
    create_environment,
    environment_python,
    pip_install,
    without_leaks,
)
from bundle.locks import exclusive
from bundle.proc import run
from bundle.selection import build_environment, selecting_variables
from bundle.space import ENVIRONMENT, require, size_of
from bundle.stock import install_stock

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from bundle.backends import Backend
    from bundle.stock import StockTorch
    from bundle.ui import Reporter
    from bundle.workspace import Workspace

JOB_VARIABLES = ("FLAGOS_BUILD_JOBS", "MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL")
LAUNCHERS = ("CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER")
_READY = ".ready"
_PROGRESS = re.compile(r"\s*(\[\d+/\d+\].*)")


@dataclass(frozen=True, kw_only=True)
class CompileInputs:
    """What one compile reads; `sdk_root` only tells a backend apart that shares its ACCELERATOR value."""

    backend: Backend
    stock: StockTorch
    workspace: Workspace
    sdk_root: Path | None = None


def build_jobs(environ: Mapping[str, str]) -> int:
    """Return how many compilers may run at once: the first of JOB_VARIABLES that is set, else the CPUs we may use.

    Raises:
        UsageError: a value that is not a whole number of at least 1.
    """
    for variable in JOB_VARIABLES:
        text = environ.get(variable, "")
        if not text:
            continue
        if not text.isdigit() or int(text) < 1:
            raise UsageError(f"{variable}={text!r}; expected a whole number of at least 1")
        return int(text)
    return len(os.sched_getaffinity(0))


def compile_variables(backend: Backend, environ: Mapping[str, str], *, sdk_root: Path | None) -> dict[str, str]:
    """Return the environment of a compile: the caller's, with every variable that selects a backend set or removed."""
    foreign = {name for other in BACKENDS.values() if other.told_by_sdk for name in other.sdk_variables}
    foreign |= selecting_variables()
    result = {name: value for name, value in without_leaks(environ).items() if name not in foreign}
    result.update(build_environment(backend))
    if backend.told_by_sdk:
        result[backend.sdk_variables[0]] = str(sdk_root or backend.sdk_defaults[0])
    result["CMAKE_BUILD_PARALLEL_LEVEL"] = str(build_jobs(environ))
    return result


def cache_variables(ccache: Path, workspace: Workspace, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what makes CMake compile through ccache, as far as the caller has not set it otherwise.

    Backends differ in one of eight compilations: the second to be compiled takes the rest from the first. The caller's
    own CCACHE_* variables hold, CCACHE_DISABLE=1 among them, and so does a launcher of his own, in a new build tree.
    """
    repository = workspace.repository
    defaults = {name: str(ccache) for name in LAUNCHERS}
    # Paths below it are compared relative to each build tree, and all trees are equally deep.
    defaults.update(CCACHE_DIR=str(workspace.compiler_cache), CCACHE_BASEDIR=str(repository))
    # What ccache leaves out of its keys: what the prefix maps say, which end up in the objects.
    defaults["CCACHE_EXTRAFILES"] = str(repository / "cmake" / "FlagosTorch.cmake")
    return {name: value for name, value in defaults.items() if not environ.get(name)}


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def environment_contents(stock: StockTorch, project: Path) -> str:
    """Return what decides about an environment's contents; the rest of pyproject.toml may change without a new one."""
    groups = tomllib.loads(project.read_text(encoding="utf-8"))["dependency-groups"]
    return json.dumps([stock.requirement, stock.index, groups], sort_keys=True)


def _environment(stock: StockTorch, workspace: Workspace) -> Path:
    return workspace.environments / f"cp{stock.python.replace('.', '')}-torch{stock.version}"


def environment_size(stock: StockTorch, workspace: Workspace) -> int:
    """Return the bytes that an environment with this stock torch takes: as the one to compile in, if it is there."""
    folder = _environment(stock, workspace)
    return size_of(folder) if (folder / _READY).is_file() else ENVIRONMENT


def build_python(stock: StockTorch, workspace: Workspace, environ: Mapping[str, str], ui: Reporter) -> Path:
    """Return the interpreter of an environment with stock torch and the compile group, made on first use.

    The environment is reused while its requirements stay the same; an unfinished one is made anew.

    Raises:
        NoSpaceError: too little space for it.
        ToolError: it could not be made.
    """
    project = workspace.repository / "pyproject.toml"
    wanted = environment_contents(stock, project)
    folder = _environment(stock, workspace)
    ready = folder / _READY
    with _locked(workspace.environments):
        if ready.is_file() and ready.read_text() == wanted:
            return environment_python(folder)
        title = f"environment with {stock.requirement} for Python {stock.python}"
        require(title, ENVIRONMENT - size_of(folder), workspace.environments)
        with about(folder), ui.step(title):
            python = create_environment(folder, stock.python, environ, ui)
            install_stock(python, stock, environ, ui)
            pip_install(python, ["--group", f"{project}:compile"], environ, ui)
            ready.write_text(wanted)
    return python


def _show_progress(line: str, ui: Reporter) -> None:
    if match := _PROGRESS.match(line):
        ui.progress(match.group(1))


def compile_stage(inputs: CompileInputs, environ: Mapping[str, str], ui: Reporter) -> Path:
    """Compile the plugin for one backend and return the thin wheel, which appears by rename.

    Raises:
        ToolError: the compiler or CMake failed; their last lines are quoted.
        RefusedError: the build gave no wheel, or more than one; or another run is compiling for this backend.
    """
    workspace = inputs.workspace
    check_compilers(environ)
    python = build_python(inputs.stock, workspace, environ, ui)
    with exclusive(
        workspace.build / ".compile.lock", backend=inputs.backend.name, doing=f"compiling in {workspace.build}"
    ):
        return _compile(inputs, python, environ, ui)


def _compile(inputs: CompileInputs, python: Path, environ: Mapping[str, str], ui: Reporter) -> Path:
    workspace = inputs.workspace
    staging = workspace.build / "compile.partial"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    tree = workspace.build / "cmake" / f"cp{inputs.stock.python.replace('.', '')}-torch{inputs.stock.version}"
    variables = compile_variables(inputs.backend, environ, sdk_root=inputs.sdk_root)
    variables["PATH"] = f"{python.parent}{os.pathsep}{variables.get('PATH', os.defpath)}"
    variables.update(cache_variables(python.parent / "ccache", workspace, variables))
    command: list[str | Path] = [python, "-m", "pip", "wheel", workspace.repository, "--wheel-dir", staging]
    command += ["--no-deps", "--no-build-isolation", "--verbose", "--config-settings", f"build-dir={tree}"]
    with ui.step(f"{inputs.backend.name}: compile against {inputs.stock.requirement}"):
        try:
            run(command, ui=ui, env=variables, on_line=lambda line: _show_progress(line, ui))
        except ToolError as err:
            err.suggest(f"the compiler's own words are above; the build tree is {tree}")
            raise
    wheels = list(staging.glob("*.whl"))
    if len(wheels) != 1:
        raise RefusedError(f"{inputs.backend.name}: compile gave {len(wheels)} wheels in {staging}, expected one")
    shutil.rmtree(workspace.compiled, ignore_errors=True)
    staging.rename(workspace.compiled)
    return workspace.compiled / wheels[0].name
