"""What the wheel says of itself: `_build.json` (always there) and `_bundle.json` (only where vendor files are bundled).

The build tool writes both, with these fields (bundle/manifest.py). Unknown keys are refused: a reader must not guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from torch_fl_boot.errors import (
    DamagedBundleError,
    MalformedRecordError,
    MissingIdentityError,
    UnreadableBundleError,
)
from torch_fl_boot.paths import is_plain_name
from torch_fl_boot.typed import ShapeError, load_json, read_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

T = TypeVar("T")

SCHEMA = 1
BUNDLE_FILE = "_bundle.json"
BUILD_FILE = "_build.json"
ALWAYS, DRIVER = "always", "driver"
VENDOR_CORE, STOCK_CORE = "vendor", "stock"
LOADED_ROLES = ("core", "device")
ROLES = (*LOADED_ROLES, "third-party", "data")


@dataclass(frozen=True, kw_only=True)
class BundledFile:
    """One file of the bundle directory; `size` in bytes, `needed` and `runpath` as written in the ELF file."""

    name: str
    soname: str | None
    role: str
    sha256: str
    size: int
    needed: tuple[str, ...]
    runpath: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LoadStep:
    """One library to open; `when` is "always", or "driver": only where its driver is present."""

    name: str
    when: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of `_bundle.json`; `core` is "vendor" or "stock", names are relative to `bundle_dir`."""

    schema: int
    backend: str
    title: str
    core: str
    strategy: str
    bundle_dir: str
    torch: str
    python: str
    machine: str
    label: str
    forged: bool
    vendor_torch: str
    sdk_version: str
    runtime_prefix: str
    runtime_libraries: tuple[str, ...]
    gems_vendor: str
    load: tuple[LoadStep, ...]
    files: tuple[BundledFile, ...]
    driver_sonames: tuple[str, ...]
    driver_dirs: tuple[str, ...]
    version_fields: dict[str, str]
    requirements: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BuildRecord:
    """The content of `_build.json`: what the plugin was compiled for, and against which torch."""

    schema: int
    backend: str
    accelerator: str
    version: str
    torch: str
    python: str
    machine: str
    bundle_dir: str
    flaggems_python: bool
    runtime_prefix: str
    runtime_libraries: tuple[str, ...]


def read_build_record(package: Path) -> BuildRecord:
    """Read `_build.json` of the installed package.

    Raises:
        MissingIdentityError: there is none.
        UnreadableBundleError: this user may not read it.
        MalformedRecordError: it is not a build record of this schema.
    """
    path = package / BUILD_FILE
    try:
        record = _read(BuildRecord, path, "a build record")
    except FileNotFoundError:
        raise MissingIdentityError(path) from None
    if not is_plain_name(record.bundle_dir):
        raise MalformedRecordError(path, f"not a plain name: {record.bundle_dir!r}")
    return record


def read_manifest(package: Path, build: BuildRecord) -> Manifest | None:
    """Read `_bundle.json`, or return None for a plain build, which has none.

    Raises:
        DamagedBundleError: it is gone, while the bundle that it describes is there.
        UnreadableBundleError: this user may not read it.
        MalformedRecordError: it is not a manifest of this schema, or belongs to another backend than the plugin.
    """
    path = package / BUNDLE_FILE
    try:
        manifest = _read(Manifest, path, "a bundle manifest")
    except FileNotFoundError:
        bundle = package / build.bundle_dir
        if path.is_symlink() or bundle.exists():
            # As a plain build it would run on stock torch's core without a word.
            raise DamagedBundleError(bundle, [f"{BUNDLE_FILE}: missing"]) from None
        return None
    if manifest.backend != build.backend:
        raise MalformedRecordError(
            path, f"the bundle is for backend {manifest.backend}, the plugin was compiled for {build.backend}"
        )
    faults = list(_faults(manifest))
    if faults:
        raise MalformedRecordError(path, "; ".join(faults))
    return manifest


def _faults(manifest: Manifest) -> Iterator[str]:
    """Yield what no dataclass can tell: words that are not among those known, and names that do not fit together."""
    names = {file.name for file in manifest.files}
    steps = {step.name for step in manifest.load}
    if unknown := steps - names:
        yield f"files to load that are not listed: {', '.join(sorted(unknown))}"
    if idle := {file.name for file in manifest.files if file.role in LOADED_ROLES} - steps:
        yield f"libraries of torch that are listed and never loaded: {', '.join(sorted(idle))}"
    if leading := [name for name in (manifest.bundle_dir, *names) if not is_plain_name(name)]:
        yield f"not plain names: {', '.join(sorted(map(repr, leading)))}"
    for what, found, known in (
        ("core", {manifest.core}, (VENDOR_CORE, STOCK_CORE)),
        ("role", {file.role for file in manifest.files}, ROLES),
        ("when", {step.when for step in manifest.load}, (ALWAYS, DRIVER)),
    ):
        if strange := found.difference(known):
            yield f"{what} {', '.join(sorted(strange))}, expected one of {', '.join(known)}"


def _read(kind: type[T], path: Path, what: str) -> T:
    try:
        data = load_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except PermissionError as err:
        raise UnreadableBundleError(path.parent, [f"{path.name}: cannot be read: {err.strerror}"]) from err
    except (OSError, UnicodeDecodeError, ShapeError) as err:
        raise MalformedRecordError(path, f"cannot be read: {err}") from err
    try:
        return shaped(kind, data, what)
    except ShapeError as err:
        raise MalformedRecordError(path, str(err)) from err


def shaped(kind: type[T], data: object, what: str) -> T:
    """Make a record of parsed JSON; `what` names its kind in errors.

    Raises:
        ShapeError: another schema, or keys or types that do not fit.
    """
    found = data.get("schema") if isinstance(data, dict) else type(data).__name__
    if found != SCHEMA or found is True:
        raise ShapeError(f"schema {found!r}, expected {SCHEMA}")
    try:
        return read_record(kind, data)
    except ShapeError as err:
        raise ShapeError(f"not {what} of schema {SCHEMA}: {err}") from err
