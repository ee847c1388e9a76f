"""Doctor's look at what is installed: records, Python, machine, stock torch, and every byte of the bundle."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from torch_fl_boot.errors import FlagosImportError, IncompatibleError, TorchMissingError
from torch_fl_boot.manifest import BUILD_FILE, BUNDLE_FILE, read_build_record, read_manifest
from torch_fl_boot.maps import mapped_libraries
from torch_fl_boot.preflight import file_problems, is_noexec
from torch_fl_boot.report import Finding, Severity
from torch_fl_boot.stock import base_version, locate_stock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch_fl_boot.manifest import BuildRecord, BundledFile, Manifest
    from torch_fl_boot.stock import StockTorch

    # Called with the file's name and the bytes read and to read, over all files.
    Progress = Callable[[str, int, int], None]

_CHUNK = 1 << 20
_REINSTALL = "reinstall torch_fl: pip install --force-reinstall --no-deps <the wheel>"


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What is there; `manifest` is None for a plain build, `stock` where no usable torch was found."""

    package: Path
    build: BuildRecord
    manifest: Manifest | None
    stock: StockTorch | None

    @property
    def bundle(self) -> Path:
        """The directory of the bundled files; a plain build has none."""
        return self.package / (self.manifest or self.build).bundle_dir

    @property
    def plugin(self) -> tuple[Path, ...]:
        """The extension module, by which the plugin's own libraries are opened, and libflagos."""
        return (*sorted(self.package.glob("_C.*.so")), self.package / "lib" / "libflagos.so")


def read_installation(package: Path) -> tuple[Installation | None, tuple[Finding, ...]]:
    """Read the records and find stock torch; None where a record is missing, with the finding that says so."""
    record = BUILD_FILE
    try:
        build = read_build_record(package)
        record = BUNDLE_FILE
        manifest = read_manifest(package, build)
    except FlagosImportError as err:
        expected = f"readable records {BUILD_FILE} and {BUNDLE_FILE}"
        return None, (_error("R001", package / record, err.what, expected, err.hint),)
    stock: StockTorch | None = None
    findings: tuple[Finding, ...] = ()
    try:
        stock = locate_stock(expected=(manifest or build).torch)
    except TorchMissingError as err:
        findings = (_error("R004", "torch", err.what, f"torch {(manifest or build).torch}", err.hint),)
    return Installation(package=package, build=build, manifest=manifest, stock=stock), findings


def _error(code: str, where: object, found: str, expected: str, hint: str) -> Finding:
    return Finding(code=code, severity=Severity.ERROR, where=str(where), found=found, expected=expected, hint=hint)


def check_versions(installation: Installation) -> Iterator[Finding]:
    """Compare Python, machine and stock torch with what the wheel was built for."""
    record = installation.manifest or installation.build
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    wanted = f"cp{record.python.removeprefix('cp').replace('.', '')}"
    if python != wanted:
        hint = f"install the torch_fl wheel for {python}, or use the Python that {wanted} stands for"
        yield _error("R002", sys.executable, python, wanted, hint)
    if platform.machine() != record.machine:
        hint = f"install the torch_fl wheel for {platform.machine()}"
        yield _error("R003", "this machine", platform.machine(), record.machine, hint)
    stock = installation.stock
    if stock is not None and base_version(stock.version) != base_version(record.torch):
        expected = base_version(record.torch)
        hint = f"pip install torch=={expected}+cpu, or install the torch_fl wheel built for {stock.version}"
        yield _error("R005", stock.package, f"torch {stock.version}", f"torch {expected}", hint)


def check_first(installation: Installation) -> Iterator[Finding]:
    """Look whether `import torch_fl` in an interpreter started like this one takes the package that was examined."""
    spec = importlib.util.find_spec(installation.package.name)
    places = [
        os.path.realpath(place) for place in (spec.submodule_search_locations if spec is not None else None) or ()
    ]
    if places and os.path.realpath(installation.package) not in places:
        hint = "run from another directory, or remove the entry that leads to it from PYTHONPATH"
        yield _error("R053", "sys.path", ", ".join(places), str(installation.package), hint)


def check_proc() -> Iterator[Finding]:
    """Look whether a process can tell what it has mapped."""
    try:
        mapped_libraries()
    except IncompatibleError as err:
        yield _error("R007", "/proc/self/maps", err.what, "a readable file", err.hint)


def check_files(installation: Installation) -> Iterator[Finding]:
    """Compare presence, size and ELF headers with the manifest, and look at permissions and the mount."""
    package, manifest = installation.package, installation.manifest
    if manifest is None:
        return
    for file in manifest.files:
        path = installation.bundle / file.name
        for problem in file_problems(file, path, manifest.machine):
            if problem.unreadable:
                yield _unreadable(path, problem.text)
            else:
                yield _error("R010", path, problem.text, f"the file that {BUNDLE_FILE} describes", _REINSTALL)
    if is_noexec(package):
        yield _error("R013", package, "mounted noexec", "a file system that allows to map code", noexec_hint(package))


def _unreadable(path: Path, found: str) -> Finding:
    hint = f"give user {os.getuid()} the right to read {path} and to enter its directories"
    return _error("R012", path, found, "a readable file", hint)


def noexec_hint(path: Path) -> str:
    """Return the next step for a wheel on a noexec mount."""
    return f"install the environment on a file system without noexec, or remount the one that holds {path}"


def check_hashes(installation: Installation, progress: Progress) -> Iterator[Finding]:
    """Read every bundled file whose size is right and compare its sha256; `check_files` has told of the others."""
    files = installation.manifest.files if installation.manifest is not None else ()
    total, done = sum(file.size for file in files), 0
    for file in files:
        path = installation.bundle / file.name
        try:
            found = _sha256(path, file, partial(_advance, progress, file.name, done, total))
        except FileNotFoundError:
            found = None
        except OSError as err:
            found = None
            yield _unreadable(path, f"{file.name}: cannot be read: {err.strerror}")
        done += file.size
        if found is not None and found != file.sha256:
            yield _error("R011", path, found, file.sha256, _REINSTALL)
    progress("", total, total)


def _advance(progress: Progress, name: str, before: int, total: int, read: int) -> None:
    progress(name, before + read, total)


def _sha256(path: Path, file: BundledFile, progress: Callable[[int], None]) -> str | None:
    """Return the digest, or None for a file of another size."""
    digest, read = hashlib.sha256(), 0
    if path.stat().st_size != file.size:
        return None
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            read += len(chunk)
            progress(read)
    return digest.hexdigest()
