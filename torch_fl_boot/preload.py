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
from typing import TYPE_CHECKING, TypeAlias

from torch_fl_boot.elf import MACHINES, index_library
from torch_fl_boot.errors import (
    SYMBOL_WORDS,
    DriverAbsentError,
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
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from torch_fl_boot.plan import PreloadPlan, Step

# For each step that lacks libraries of the driver stack: which ones, with the loader's words.
_Lacking: TypeAlias = "Mapping[Step, Mapping[str, str]]"

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


def preload(plan: PreloadPlan, *, needs_driver: bool = False, present: Collection[str] = ()) -> Preloaded:
    """Open the plan's libraries, without the optional ones whose driver is absent.

    `present` are the names of those that were in the process before, which a failure leaves there.

    Raises:
        DriverAbsentError: this machine lacks the vendor's runtime, or, with `needs_driver`, the driver alone.
        DriverMissingError: a library that is not optional lacks a part of the driver stack.
        PreloadError: the loader refused for another reason.
        IndexFileError: the file that would open them cannot be made.
        LeftoverError: it refused, and could not undo what it had done.
    """
    try:
        steps, skipped = _open_plan(plan, needs_driver=needs_driver)
    except FlagosImportError as err:
        leftovers = [name for name in _mapped_of(plan) if name not in present]
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


def _open_plan(plan: PreloadPlan, *, needs_driver: bool) -> tuple[Sequence[Step], tuple[Skipped, ...]]:
    try:
        _open_all(plan.borrowed, plan.steps)
    except OSError as err:
        words = str(err)
    else:
        return plan.steps, ()
    lacking = check_driver(plan, needs_driver=needs_driver)
    skipped = _skippable(plan, lacking, words)
    remaining = [step for step in plan.steps if step not in skipped]
    if not skipped:
        raise _refusal(plan, remaining, lacking, words)
    try:
        _open_all(plan.borrowed, remaining)
    except OSError as err:
        needed = {step: missing for step, missing in lacking.items() if step in remaining}
        raise _refusal(plan, remaining, needed, str(err)) from err
    return remaining, tuple(Skipped(name=step.path.name, reason=reason) for step, reason in skipped.items())


def check_driver(plan: PreloadPlan, *, needs_driver: bool) -> _Lacking:
    """Return which steps lack which libraries of the driver stack; loads nothing.

    Raises:
        DriverAbsentError: as `preload`.
    """
    lacking = {step: missing for step in plan.steps if (missing := _missing_driver(step))}
    if _is_absent(plan, lacking, needs_driver=needs_driver):
        raise _driver_error(DriverAbsentError, plan, lacking)
    return lacking


def require_driver(plan: PreloadPlan, *, needs_driver: bool = False) -> None:
    """Refuse where a library that is not optional would lack a part of the driver stack; loads nothing.

    Raises:
        DriverAbsentError: as `preload`.
        DriverMissingError: the driver stack is there, and incomplete.
    """
    lacking = check_driver(plan, needs_driver=needs_driver)
    needed = {step: missing for step, missing in lacking.items() if not step.optional}
    if needed:
        raise _driver_error(DriverMissingError, plan, needed)


def _is_absent(plan: PreloadPlan, lacking: _Lacking, *, needs_driver: bool) -> bool:
    """Say what `stack_is_absent` says; a library that is found but lacks a need of its own is found."""
    words = {soname: said for missing in lacking.values() for soname, said in missing.items()}
    gone = {soname for soname, said in words.items() if _blamed(said) == soname}
    return stack_is_absent(plan, gone, needs_driver=needs_driver)


def stack_is_absent(plan: PreloadPlan, gone: AbstractSet[str], *, needs_driver: bool) -> bool:
    """Whether this machine has no driver stack of this vendor, as opposed to an incomplete one.

    What tells are the vendor's runtime and the libraries that only optional steps need: where any of them is found, the
    stack is there. `gone` are the sonames that are found nowhere.
    """
    always = {soname for step in plan.steps if not step.optional for soname in step.driver}
    driver_alone = {soname for step in plan.steps for soname in step.driver} - always
    runtime = always.intersection(plan.runtime_libraries) or always
    if needs_driver and driver_alone:
        return driver_alone <= gone
    return bool(runtime) and runtime | driver_alone <= gone


def _skippable(plan: PreloadPlan, lacking: _Lacking, words: str) -> dict[Step, str]:
    """Return the optional steps that may be left out after this refusal, each with the reason.

    They are those that directly need a missing driver library. Where none does, yet the loader names a driver library,
    the driver stack is incomplete, and all optional steps go.
    """
    optional = [step for step in plan.steps if step.optional]
    reasons = {step: "; ".join(lacking[step].values()) for step in optional if step in lacking}
    return reasons or (dict.fromkeys(optional, words) if plan.is_driver(_blamed(words)) else {})


def _refusal(plan: PreloadPlan, steps: Sequence[Step], lacking: _Lacking, words: str) -> FlagosImportError:
    blamed = _blamed(words)
    # A driver library that is there, and finds no symbol in another, is too old rather than missing.
    of_symbols = any(sign in words for sign in SYMBOL_WORDS)
    if any(not step.optional for step in lacking) or (plan.is_driver(blamed) and not of_symbols):
        return _driver_error(DriverMissingError, plan, lacking, {blamed: words})
    directory = next((step.path.parent for step in steps), None)
    if directory is not None and _NO_MAPPING in words and is_noexec(directory):
        return NoExecMountError(plan.backend, words, directory)
    lacks = _lacks(plan, steps) if of_symbols else ()
    return PreloadError(plan.backend, words, sdk_version=plan.sdk_version, lacks=lacks)


def _lacks(plan: PreloadPlan, steps: Iterable[Step]) -> tuple[str, ...]:
    """Return all symbols that are missing; the loader names the first."""
    from torch_fl_boot.resolve_plan import lacks_of  # noqa: PLC0415 - most processes never need the simulation

    return lacks_of(replace(plan, steps=tuple(steps)), os.environ)


def _driver_error(
    kind: type[DriverMissingError],
    plan: PreloadPlan,
    lacking: _Lacking,
    otherwise: Mapping[str, str] | None = None,
) -> DriverMissingError:
    missing = {soname: words for of_step in lacking.values() for soname, words in of_step.items()}
    searched = dict.fromkeys(plan.library_path)
    for step in plan.steps:
        if step.driver and not step.optional:
            searched |= dict.fromkeys(step.runpath)
    found = missing or otherwise or {}
    return kind(plan.backend, found, searched=searched, hint=plan.driver_hint, relinked=plan.relinked)


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
            while data:  # a disk or a limit that takes a part says so at the next write
                data = data[os.write(descriptor, data) :]
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
