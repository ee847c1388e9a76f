"""Which stock torch a wheel is compiled against and verified with (docs/design.md, "Stock torch").

The default is `torch==2.10.0+cpu` from PyTorch's CPU index. TORCH_FL_STOCK_TORCH (a version) and TORCH_FL_STOCK_INDEX
(a URL; empty for pip's own configuration) override it. Only for forged vendors does an unreachable default fall back to
the nearest CPU build that the configured indexes offer: a real vendor's core must meet the base version it forked.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from bundle.errors import InputNotFoundError, ToolError, UsageError
from bundle.interpreters import installed_versions, pip_install, without_leaks
from bundle.proc import run
from bundle.workspace import put_text
from torch_fl_boot.typed import load_json, read_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bundle.backends import Backend
    from bundle.ui import Reporter

DEFAULT_VERSION = "2.10.0+cpu"
DEFAULT_INDEX = "https://download.pytorch.org/whl/cpu"
SUPPORTED_RANGE = ("2.10", "2.14")


@dataclass(frozen=True, kw_only=True)
class StockTorch:
    """One installable stock torch: its full version, its index ("" is pip's own), and the Python it is for."""

    version: str
    index: str
    python: str

    @property
    def requirement(self) -> str:
        """Return pip's requirement text."""
        return f"torch=={self.version}"

    @property
    def base_version(self) -> str:
        """Return the version without its local label."""
        return Version(self.version).public

    def pip_arguments(self) -> tuple[str, ...]:
        """Return what follows `pip install`."""
        return (self.requirement, *(("--index-url", self.index) if self.index else ()))


def install_stock(python: Path, stock: StockTorch, environ: Mapping[str, str], ui: Reporter) -> None:
    """Install a stock torch into an environment.

    Raises:
        ToolError: pip failed; its last lines are quoted, and the hint names the variables.
    """
    try:
        pip_install(python, stock.pip_arguments(), environ, ui)
    except ToolError as err:
        err.suggest(
            f"{stock.requirement} was to come from {stock.index or 'the index that pip is configured for'}: "
            "TORCH_FL_STOCK_INDEX names another (empty: pip's own), TORCH_FL_STOCK_TORCH another version"
        )
        raise


def requested(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the version and index that the environment asks for.

    Raises:
        UsageError: TORCH_FL_STOCK_TORCH is no version, or lies outside the supported range.
    """
    text = environ.get("TORCH_FL_STOCK_TORCH") or DEFAULT_VERSION
    index = environ.get("TORCH_FL_STOCK_INDEX", DEFAULT_INDEX)
    try:
        version = Version(text)
    except InvalidVersion as err:
        raise UsageError(
            f"TORCH_FL_STOCK_TORCH={text!r} is not a version; expected something like {DEFAULT_VERSION}"
        ) from err
    low, high = SUPPORTED_RANGE
    if not Version(low) <= version < Version(high):
        raise UsageError(f"TORCH_FL_STOCK_TORCH={text!r} is outside the supported range; expected >= {low}, < {high}")
    return text, index


def ask_index(python: str, index: str, environ: Mapping[str, str], ui: Reporter) -> tuple[str, ...]:
    """Return the versions of torch that an index has for a Python version; empty when it cannot be reached."""
    command = [sys.executable, "-m", "pip", "index", "versions", "torch", "--json", "--retries", "0", "--timeout", "15"]
    command += ["--python-version", python, "--only-binary=:all:", *(("--index-url", index) if index else ())]
    asked = run(command, ui=ui, env=without_leaks(environ), check=False)
    answers = [line for line in asked.stdout.splitlines() if line.startswith("{")]
    return tuple(json.loads(answers[-1])["versions"]) if asked.returncode == 0 and answers else ()


def nox_run(environ: Mapping[str, str]) -> str:
    """Return what tells the nox run that started this process from any other, or nothing if none did."""
    if "NOX_CURRENT_SESSION" not in environ:
        return ""
    nox = os.getppid()
    # Numbers of processes come again, but not with the same time of their start, the 20th field after the name.
    started = Path(f"/proc/{nox}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    return f"{nox} since {started}"


@dataclass(frozen=True, kw_only=True)
class _Memory:
    """What `ask_once` keeps: the nox run, and the versions by "python index"."""

    run: str
    answers: dict[str, tuple[str, ...]]


def _remembered(current: str, memory: Path) -> dict[str, tuple[str, ...]]:
    """Return the answers that the current nox run has had so far; nothing of another's, nor from a damaged file."""
    try:
        stored = read_record(_Memory, load_json(memory.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return {}
    return stored.answers if stored.run == current else {}


def ask_once(python: str, index: str, environ: Mapping[str, str], ui: Reporter, memory: Path) -> tuple[str, ...]:
    """Return what `ask_index` does; within one nox run, whose sessions share the file `memory`, it is asked once.

    Besides the time, that makes all of a run's wheels and environments of one torch. No answer outlives its run.
    """
    current = nox_run(environ)
    answers = _remembered(current, memory) if current else {}
    question = f"{python} {index}"
    if question not in answers:
        answers[question] = ask_index(python, index, environ, ui)
        if current:
            put_text(memory, json.dumps({"run": current, "answers": answers}))
    return answers[question]


def nearest(wanted: str, offers: Mapping[str, Iterable[str]], *, python: str) -> tuple[str, str] | None:
    """Choose among CPU builds, `offers` by Python version: the nearest release, then the wanted Python.

    Returns the version and its Python, or None when no supported CPU build is offered.
    """
    goal = Version(wanted)
    low, high = (Version(bound) for bound in SUPPORTED_RANGE)
    candidates = [
        (abs(version.minor - goal.minor), abs(version.micro - goal.micro), tag != python, tag, text)
        for tag, texts in offers.items()
        for text in texts
        if (version := Version(text)).local == "cpu" and low <= version < high and version.major == goal.major
    ]
    if not candidates:
        return None
    *_, tag, text = min(candidates)
    return text, tag


def resolve(
    backend: Backend, *, python: str, forged: bool, environ: Mapping[str, str], ui: Reporter, memory: Path
) -> StockTorch:
    """Return the stock torch for a backend and Python ("3.12"), falling back only for forged vendors; the log says so.

    `memory` is the file that `ask_once` keeps answers in.

    Raises:
        UsageError: as `requested`.
        InputNotFoundError: forged, and no index offers any supported CPU build for any interpreter here.
    """
    version, index = requested(environ)
    wanted = StockTorch(version=version, index=index, python=python)
    if not forged:
        return wanted
    pythons = installed_versions(environ)
    if python in pythons and version in ask_once(python, index, environ, ui, memory):
        return wanted
    chosen = nearest(version, {tag: ask_once(tag, "", environ, ui, memory) for tag in pythons}, python=python)
    if chosen is None:
        raise InputNotFoundError(
            f"stock torch {version} for Python {python} is not to be had from "
            f"{index or 'the configured indexes'}, and they offer no other CPU build for Python {', '.join(pythons)}"
        )
    fallback = StockTorch(version=chosen[0], index="", python=chosen[1])
    ui.warning(
        f"{backend.name}: stock torch {version} for Python {python} is not reachable; "
        f"forged vendor uses {fallback.version} for Python {fallback.python}"
    )
    return fallback
