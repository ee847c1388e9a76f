"""`_bundle.json` and `_build.json`: what a wheel says of itself.

`_build.json` is written by CMake when the plugin is compiled; `_bundle.json` by the bundle stage. The runtime reads
both and knows no backend by name. Unknown keys are refused: a reader must not guess.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from bundle.errors import MalformedError
from bundle.typed import ShapeError, load_json, read_record

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = 1
T = TypeVar("T")
BUNDLE_FILE = "_bundle.json"
BUILD_FILE = "_build.json"


@dataclass(frozen=True, kw_only=True)
class BundledFile:
    """One file of the bundle directory; `size` in bytes, `runpath` and `needed` as written in the file."""

    name: str
    soname: str | None
    role: str
    sha256: str
    size: int
    needed: tuple[str, ...]
    runpath: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class LoadStep:
    """One dlopen of the runtime, in order; `when` is "always" or "driver" (only where the driver is present)."""

    name: str
    when: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of `_bundle.json`; paths never appear, only names relative to the package."""

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
    schema: int = SCHEMA

    def to_json(self) -> str:
        """Return the file's text: sorted keys, so that equal bundles give equal bytes."""
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str, *, origin: str) -> Manifest:
        """Parse the file's text.

        Raises:
            MalformedError: not JSON, another schema, keys or types that do not fit, or names that lead elsewhere;
                `origin` names the file.
        """
        manifest = _parsed(cls, text, origin=origin, what="a bundle manifest")
        names = (manifest.bundle_dir, *(file.name for file in manifest.files))
        if leading := [name for name in names if PurePosixPath(name).name != name]:
            raise MalformedError(f"{origin}: not plain names: {', '.join(map(repr, leading))}")
        return manifest


@dataclass(frozen=True, kw_only=True)
class BuildRecord:
    """The content of `_build.json`: what the plugin was compiled for, and against which torch."""

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
    schema: int = SCHEMA

    @classmethod
    def from_json(cls, text: str, *, origin: str) -> BuildRecord:
        """Parse the file's text; MalformedError as for `Manifest.from_json`."""
        return _parsed(cls, text, origin=origin, what="a build record")


def _parsed(kind: type[T], text: str, *, origin: str, what: str) -> T:
    try:
        data = load_json(text)
    except ShapeError as err:
        raise MalformedError(f"{origin}: {err}") from err
    found = data.get("schema") if isinstance(data, dict) else type(data).__name__
    if found != SCHEMA or found is True:
        raise MalformedError(f"{origin}: schema {found!r}, expected {SCHEMA}")
    try:
        return read_record(kind, data)
    except ShapeError as err:
        raise MalformedError(f"{origin}: not {what} of schema {SCHEMA}: {err}") from err


def read_manifest(path: Path) -> Manifest:
    """Read `_bundle.json`; MalformedError as for `Manifest.from_json`, also for bytes that are not UTF-8."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as err:
        raise MalformedError(f"{path}: not UTF-8: {err}") from err
    return Manifest.from_json(text, origin=str(path))
