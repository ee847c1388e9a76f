"""What is checked before the first dlopen: afterwards a refusal would come as an abort that no `except` can catch."""

from __future__ import annotations

import platform
import sys
from enum import Enum
from typing import TYPE_CHECKING

from torch_fl_boot.elf import MACHINES, NotElfError, read_dynamic
from torch_fl_boot.errors import DamagedBundleError, ImportOrderError, IncompatibleError, TorchMismatchError
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
        ImportOrderError: a torch core that is not the bundle's is in the process.
    """
    copies = copies_of(plan.origins, mapped)
    # Every torch opens its own stub of this name by path; it holds no code.
    copies.pop(GLOBAL_DEPS, None)
    for name, paths in copies.items():
        foreign = [path for path in paths if path != str(plan.origins[name].resolve())]
        if foreign:
            raise ImportOrderError(_evidence(foreign[0], torch_imported=torch_imported))
    if all(is_mapped(step.path, mapped) for step in plan.steps if not step.optional):
        return ProcessState.ON_BUNDLE
    stock_core = [paths[0] for name, paths in copies.items() if name in CORE_NAMES] if core != VENDOR_CORE else []
    if torch_imported or stock_core:
        raise ImportOrderError(_evidence(*stock_core[:1], torch_imported=torch_imported))
    return ProcessState.FRESH


def _evidence(path: str = "", *, torch_imported: bool) -> str:
    runs_on = f"{path} is loaded in this process" if path else ""
    imported = "torch is already imported" if torch_imported else ""
    return "; ".join(filter(None, (imported, runs_on)))


def check_files(manifest: Manifest, bundle: Path) -> None:
    """Compare the bundled files with the manifest: presence, size, ELF header, DT_SONAME and DT_NEEDED, no hashes.

    Raises:
        DamagedBundleError: listing every difference.
    """
    problems = [problem for file in manifest.files for problem in _problems(file, bundle / file.name, manifest.machine)]
    if problems:
        raise DamagedBundleError(bundle, problems)


def _problems(file: BundledFile, path: Path, machine: str) -> Iterator[str]:
    try:
        size = path.stat().st_size
        if size != file.size:
            yield f"{file.name}: {size} bytes, expected {file.size}"
        elif file.role != _DATA_ROLE:
            yield from _elf_problems(file, path, machine)
    except FileNotFoundError:
        yield f"{file.name}: missing"
    except OSError as err:
        yield f"{file.name}: cannot be read: {err.strerror}"


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
