"""Opens the bundle in one transaction: everything is loaded, or nothing stays.

A tiny library whose DT_NEEDED are the absolute paths of the plan is written to memory and opened. The loader maps every
entry before it looks at what the first one needs, so a copy on LD_LIBRARY_PATH is never considered; it runs no
constructor before all are relocated; and when one fails it unmaps them all, STB_GNU_UNIQUE symbols included. One dlopen
after the other would leave the vendor's core behind when a later library fails, and torch on it.

The libraries are opened RTLD_LOCAL, as `import torch` itself opens them: libtorch_cpu exports BLAS and other names that
would take over those of unrelated modules. Only libtorch_global_deps goes into the global scope, as torch does it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from torch_fl_boot.elf import MACHINES, index_library
from torch_fl_boot.errors import (
    SYMBOL_WORDS,
    DriverMissingError,
    FlagosImportError,
    IndexFileError,
    LeftoverError,
    NoExecMountError,
    PreloadError,
)
from torch_fl_boot.maps import is_mapped, mapped_libraries
from torch_fl_boot.preflight import is_noexec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch_fl_boot.plan import PreloadPlan, Step

# A path that cannot exist. Needed after the library in question, it makes the probe fail before anything is loaded.
_NOWHERE = "/dev/null/torch_fl"

_MFD_NOEXEC_SEAL = 0x8
_NO_MAPPING = "failed to map segment from shared object"


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A library that was left out because its driver is absent, with the loader's words."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Preloaded:
    """What the transaction opened, in order, and what it left out."""

    loaded: tuple[str, ...]
    skipped: tuple[Skipped, ...] = ()


def preload(plan: PreloadPlan) -> Preloaded:
    """Open the plan's libraries, without the optional ones whose driver is absent.

    Raises:
        DriverMissingError: a library that is not optional lacks its driver.
        PreloadError: the loader refused for another reason.
        IndexFileError: the file that would open them cannot be made.
        LeftoverError: it refused, and could not undo what it had done.
    """
    try:
        steps, skipped = _open_plan(plan)
    except FlagosImportError as err:
        leftovers = _mapped_of(plan)
        if leftovers:
            raise LeftoverError(err, leftovers) from err
        raise
    if plan.global_deps is not None:
        ctypes.CDLL(str(plan.global_deps), mode=os.RTLD_NOLOAD | os.RTLD_GLOBAL)
    return Preloaded(
        loaded=(*(path.name for path in plan.borrowed), *(step.path.name for step in steps)), skipped=skipped
    )


def already_loaded(plan: PreloadPlan) -> Preloaded:
    """Describe a process that runs on the bundle already; what is not mapped was left out for want of a driver."""
    mapped = _mapped_of(plan)
    missing = [step.path.name for step in plan.steps if step.path.name not in mapped]
    loaded = (*(path.name for path in plan.borrowed), *mapped)
    return Preloaded(loaded=loaded, skipped=tuple(Skipped(name=name, reason="not loaded") for name in missing))


def _open_plan(plan: PreloadPlan) -> tuple[Sequence[Step], tuple[Skipped, ...]]:
    try:
        _open_all(plan.borrowed, plan.steps)
    except OSError as err:
        words = str(err)
    else:
        return plan.steps, ()
    skipped = _skippable(plan, words)
    remaining = [step for step in plan.steps if step not in skipped]
    if not skipped:
        raise _refusal(plan, remaining, words)
    try:
        _open_all(plan.borrowed, remaining)
    except OSError as err:
        raise _refusal(plan, remaining, str(err)) from err
    return remaining, tuple(Skipped(name=step.path.name, reason=reason) for step, reason in skipped.items())


def _skippable(plan: PreloadPlan, words: str) -> dict[Step, str]:
    """Return the optional steps that may be left out after this refusal, each with the reason.

    They are those that directly need a missing driver library. Where none does, yet the loader names a driver library,
    the driver stack is incomplete, and all optional steps go.
    """
    optional = [step for step in plan.steps if step.optional]
    lacking = {step: missing for step in optional if (missing := _missing_driver(step))}
    if lacking:
        return {step: "; ".join(missing.values()) for step, missing in lacking.items()}
    return dict.fromkeys(optional, words) if plan.is_driver(_blamed(words)) else {}


def _refusal(plan: PreloadPlan, steps: Iterable[Step], words: str) -> FlagosImportError:
    missing: dict[str, str] = {}
    searched = dict.fromkeys(plan.library_path)
    for step in steps:
        if step.driver:
            missing |= _missing_driver(step)
            searched |= dict.fromkeys(step.runpath)
    blamed = _blamed(words)
    if not missing and plan.is_driver(blamed):
        missing = {blamed: words}
    if missing:
        return DriverMissingError(plan.backend, missing, searched=searched, requirements=plan.requirements)
    directory = next((step.path.parent for step in steps), None)
    if directory is not None and _NO_MAPPING in words and is_noexec(directory):
        return NoExecMountError(plan.backend, words, directory)
    lacks = _lacks(plan, steps) if any(sign in words for sign in SYMBOL_WORDS) else ()
    return PreloadError(plan.backend, words, sdk_version=plan.sdk_version, lacks=lacks)


def _lacks(plan: PreloadPlan, steps: Iterable[Step]) -> tuple[str, ...]:
    """Return all symbols that are missing; the loader names the first."""
    # Only here: most processes never need the simulation.
    from torch_fl_boot.resolve import running_program  # noqa: PLC0415
    from torch_fl_boot.resolve_plan import describe_lacks, simulate  # noqa: PLC0415
    from torch_fl_boot.resolve_settings import settings_of  # noqa: PLC0415

    opened = replace(plan, steps=tuple(steps))
    return describe_lacks(simulate(opened, settings_of(os.environ), running_program()))


def _missing_driver(step: Step) -> dict[str, str]:
    """Return the driver libraries that the step needs and the loader does not find, with its words; loads nothing."""
    missing = {}
    for soname in step.driver:
        words = _words_for([soname, _NOWHERE], runpath=":".join(step.runpath))
        if not words.startswith(_NOWHERE):
            missing[soname] = words
    return missing


def _blamed(words: str) -> str:
    """Return the file name that the loader's message begins with: `libcuda.so.1: cannot open ...`."""
    return PurePosixPath(words.partition(":")[0]).name


def _mapped_of(plan: PreloadPlan) -> list[str]:
    mapped = mapped_libraries()
    return [step.path.name for step in plan.steps if is_mapped(step.path, mapped)]


def _words_for(needed: Sequence[str], *, runpath: str) -> str:
    try:
        _open_index(needed, runpath=runpath)
    except OSError as err:
        return str(err)
    raise AssertionError(f"{_NOWHERE} was opened")


def _open_all(borrowed: Iterable[Path], steps: Iterable[Step]) -> None:
    _open_index([*map(str, borrowed), *(str(step.path) for step in steps)])


def _open_index(needed: Iterable[str], *, runpath: str = "") -> None:
    """Write the index library to memory and open it; OSError carries the loader's words."""
    machine = {name: number for number, name in MACHINES.items()}[platform.machine()]
    descriptor = _file_of(index_library(needed, machine=machine, runpath=runpath))
    try:
        # The loader knows libraries by the path they were opened with, and /proc/self/fd/N is what other programs use.
        ctypes.CDLL(f"/proc/thread-self/fd/{descriptor}", mode=ctypes.RTLD_LOCAL)
    finally:
        os.close(descriptor)


def _file_of(data: bytes) -> int:
    """Return the descriptor of a file without a name that holds the data.

    Raises:
        IndexFileError: neither memory nor the temporary directory takes it; an OSError would pass for the loader's.
    """
    try:
        descriptor = _memory_file()
        try:
            os.write(descriptor, data)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as err:
        raise IndexFileError(str(err)) from err
    return descriptor


def _memory_file() -> int:
    """Create an anonymous file; kernels that forbid executable ones want to hear that this is none.

    Where memory gives none (a Python built for glibc before 2.27, a sandbox), the temporary directory does. It may be
    mounted noexec: no segment of the file is executable.
    """
    if hasattr(os, "memfd_create"):
        # Before Linux 6.3 the flag is unknown.
        for flags in (os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL, os.MFD_CLOEXEC):
            with suppress(OSError):
                return os.memfd_create("torch_fl_preload", flags)
    descriptor, name = tempfile.mkstemp(prefix="torch_fl_preload")
    Path(name).unlink()
    return descriptor
