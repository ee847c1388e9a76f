"""What the wheel says of itself: `_build.json` (always there) and `_bundle.json` (only where vendor files are bundled).

The build tool writes both; it is not part of the wheel, so the runtime has its own reader. Unknown keys are refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_fl._errors import MalformedRecordError, MissingIdentityError

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = 1
BUNDLE_FILE = "_bundle.json"
BUILD_FILE = "_build.json"
ALWAYS, DRIVER = "always", "driver"
VENDOR_CORE = "vendor"


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
        MalformedRecordError: it is not a build record of this schema.
    """
    path = package / BUILD_FILE
    if not path.is_file():
        raise MissingIdentityError(path)
    data = _object(path)
    try:
        data["runtime_libraries"] = tuple(data["runtime_libraries"])
        return BuildRecord(**data)
    except (KeyError, TypeError) as err:
        raise MalformedRecordError(path, f"not a build record of schema {SCHEMA}: {err}") from err


def read_manifest(package: Path, build: BuildRecord) -> Manifest | None:
    """Read `_bundle.json`, or return None for a plain build, which has none.

    Raises:
        MalformedRecordError: it is not a manifest of this schema, or belongs to another backend than the plugin.
    """
    path = package / BUNDLE_FILE
    if not path.exists():
        return None
    data = _object(path)
    try:
        manifest = _manifest(data)
    except (KeyError, TypeError) as err:
        raise MalformedRecordError(path, f"not a bundle manifest of schema {SCHEMA}: {err}") from err
    if manifest.backend != build.backend:
        raise MalformedRecordError(
            path, f"the bundle is for backend {manifest.backend}, the plugin was compiled for {build.backend}"
        )
    unknown = {step.name for step in manifest.load} - {file.name for file in manifest.files}
    if unknown:
        raise MalformedRecordError(path, f"files to load that are not listed: {', '.join(sorted(unknown))}")
    return manifest


def _manifest(data: dict[str, Any]) -> Manifest:
    data["load"] = tuple(LoadStep(**step) for step in data["load"])
    data["files"] = tuple(
        BundledFile(**{**file, "needed": tuple(file["needed"]), "runpath": tuple(file["runpath"])})
        for file in data["files"]
    )
    for key in ("runtime_libraries", "driver_sonames", "driver_dirs", "requirements"):
        data[key] = tuple(data[key])
    return Manifest(**data)


def _object(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise MalformedRecordError(path, f"cannot be read: {err}") from err
    found = data.get("schema") if isinstance(data, dict) else type(data).__name__
    if not isinstance(data, dict) or found != SCHEMA:
        raise MalformedRecordError(path, f"schema {found!r}, expected {SCHEMA}")
    return data
