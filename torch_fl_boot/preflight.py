"""What is checked before the first dlopen: afterwards a refusal would come as an abort that no `except` can catch."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING

from torch_fl_boot.elf import MACHINES, NotElfError, read_dynamic
from torch_fl_boot.errors import (
    DamagedBundleError,
    ForeignCoreError,
    ImportOrderError,
    IncompatibleError,
    TorchMismatchError,
    UnreadableBundleError,
)
from torch_fl_boot.manifest import VENDOR_CORE
from torch_fl_boot.maps import copies_of, is_mapped
from torch_fl_boot.plan import CORE_NAMES, GLOBAL_DEPS
from torch_fl_boot.stock import base_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch_fl_boot.manifest import BuildRecord, BundledFile, Manifest
    from torch_fl_boot.plan import PreloadPlan
    from torch_fl_boot.stock import StockTorch

_DATA_ROLE = "data"


class ProcessState(Enum):
    """Whether this process still has to load the bundle."""

    FRESH = "fresh"
    ON_BUNDLE = "on the bundle"
    # A relinked torch that was imported without the hook: it mapped what the core needs, and nothing else.
    CORE_ON_BUNDLE = "core on the bundle"


def check_target(record: BuildRecord | Manifest) -> None:
    """Refuse an interpreter or a machine that the wheel was not built for.

    Raises:
        IncompatibleError: naming both.
    """
    found = f"{sys.version_info.major}.{sys.version_info.minor}"
    expected = _python_version(record.python)
    if found != expected:
        raise IncompatibleError(
            f"torch_fl was built for Python {expected}, found Python {found} at {sys.executable}",
            hint=f"install the torch_fl wheel for Python {found}, or use Python {expected}",
        )
    if platform.machine() != record.machine:
        raise IncompatibleError(
            f"torch_fl was built for {record.machine}, found {platform.machine()}",
            hint=f"install the torch_fl wheel for {platform.machine()}",
        )


def _python_version(tag: str) -> str:
    """Return 3.12 for both 3.12 and cp312."""
    digits = tag.removeprefix("cp")
    return digits if "." in digits else f"{digits[:1]}.{digits[1:]}"


def check_stock(stock: StockTorch, record: BuildRecord | Manifest) -> None:
    """Refuse a stock torch of another base version.

    Raises:
        TorchMismatchError: naming both.
    """
    expected = base_version(record.torch)
    if base_version(stock.version) != expected:
        raise TorchMismatchError(found=stock.version, expected=expected, where=stock.package)


def check_process(
    plan: PreloadPlan, core: str, mapped: Mapping[str, tuple[str, ...]], *, torch_imported: bool
) -> ProcessState:
    """Say whether the bundle has still to be loaded; `mapped` is what `mapped_libraries` returned.

    Both are looked at, since a program that embeds Python can bring a libtorch without any `import torch`.

    Raises:
        ForeignCoreError: LD_PRELOAD brought a torch core.
        ImportOrderError: a torch core that is not the bundle's is in the process otherwise.
    """
    copies = copies_of(plan.origins, mapped)
    # Every torch opens its own stub of this name by path; it holds no code.
    copies.pop(GLOBAL_DEPS, None)
    for name, paths in copies.items():
        foreign = [path for path in paths if path != str(plan.origins[name].resolve())]
        if foreign:
            entry = _preload_entry(plan, foreign[0])
            if entry and not torch_imported:
                raise ForeignCoreError(_evidence(foreign[0], torch_imported=False), entry)
            raise ImportOrderError(_evidence(foreign[0], torch_imported=torch_imported))
    if all(is_mapped(step.path, mapped) for step in plan.steps if not step.optional):
        return ProcessState.ON_BUNDLE
    if core == VENDOR_CORE and all(is_mapped(step.path, mapped) for step in plan.steps if step.path.name in CORE_NAMES):
        return ProcessState.CORE_ON_BUNDLE
    stock_core = [paths[0] for name, paths in copies.items() if name in CORE_NAMES] if core != VENDOR_CORE else []
    if torch_imported or stock_core:
        raise ImportOrderError(_evidence(*stock_core[:1], torch_imported=torch_imported))
    return ProcessState.FRESH


def _preload_entry(plan: PreloadPlan, path: str) -> str:
    """Return the entry of LD_PRELOAD that is this mapped file, or ""."""
    name = PurePath(path).name
    found = (entry for entry in plan.ld_preload if entry == name or os.path.realpath(entry) == path)
    return next(found, "")


def _evidence(path: str = "", *, torch_imported: bool) -> str:
    runs_on = f"{path} is loaded in this process" if path else ""
    imported = "torch is already imported" if torch_imported else ""
    return "; ".join(filter(None, (imported, runs_on)))


def check_files(manifest: Manifest, bundle: Path) -> None:
    """Compare the bundled files with the manifest: presence, size, ELF header, DT_SONAME and DT_NEEDED, no hashes.

    Raises:
        DamagedBundleError: listing every difference.
        UnreadableBundleError: the same, where the system refuses to read some of the files.
    """
    problems = [item for file in manifest.files for item in file_problems(file, bundle / file.name, manifest.machine)]
    if any(problem.unreadable for problem in problems):
        raise UnreadableBundleError(bundle, [problem.text for problem in problems])
    if problems:
        raise DamagedBundleError(bundle, [problem.text for problem in problems])


@dataclass(frozen=True, kw_only=True)
class FileProblem:
    """A difference between a bundled file and the manifest, or (`unreadable`) the system's refusal to show it."""

    text: str
    unreadable: bool = False


def file_problems(file: BundledFile, path: Path, machine: str) -> Iterator[FileProblem]:
    """Yield what is wrong with one bundled file by a look at its size and its ELF headers."""
    try:
        size = path.stat().st_size
        if size != file.size:
            yield FileProblem(text=f"{file.name}: {size} bytes, expected {file.size}")
        elif file.role != _DATA_ROLE:
            yield from (FileProblem(text=text) for text in _elf_problems(file, path, machine))
    except FileNotFoundError:
        yield FileProblem(text=f"{file.name}: missing")
    except OSError as err:
        yield FileProblem(text=f"{file.name}: cannot be read: {err.strerror}", unreadable=True)


def _elf_problems(file: BundledFile, path: Path, machine: str) -> Iterator[str]:
    try:
        found = read_dynamic(path)
    except NotElfError as err:
        yield f"{file.name}: {err}"
        return
    if MACHINES.get(found.machine) != machine:
        yield f"{file.name}: built for {MACHINES.get(found.machine, found.machine)}, expected {machine}"
    if found.soname != file.soname:
        yield f"{file.name}: DT_SONAME {found.soname}, expected {file.soname}"
    if found.needed != file.needed:
        yield f"{file.name}: DT_NEEDED {' '.join(found.needed)}, expected {' '.join(file.needed)}"


def is_noexec(directory: Path) -> bool:
    """Whether the file system refuses to map code from here; False where it does not say."""
    try:
        return bool(os.statvfs(directory).f_flag & os.ST_NOEXEC)
    except OSError:
        return False
