"""`_bundle.json` and `_build.json`: what a wheel says of itself.

`_build.json` is written by CMake when the plugin is compiled; `_bundle.json` by the bundle stage. The runtime reads
both and knows no backend by name. Unknown keys are refused: a reader must not guess.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bundle.errors import MalformedError

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = 1
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
            MalformedError: not JSON, another schema, or keys that do not fit; `origin` names the file.
        """
        data = _object(text, origin=origin)
        try:
            data["load"] = tuple(LoadStep(**step) for step in data["load"])
            data["files"] = tuple(
                BundledFile(**{**file, "needed": tuple(file["needed"]), "runpath": tuple(file["runpath"])})
                for file in data["files"]
            )
            for key in ("runtime_libraries", "driver_sonames", "driver_dirs", "requirements"):
                data[key] = tuple(data[key])
            return cls(**data)
        except (KeyError, TypeError) as err:
            raise MalformedError(f"{origin}: not a bundle manifest of schema {SCHEMA}: {err}") from err


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
        data = _object(text, origin=origin)
        try:
            data["runtime_libraries"] = tuple(data["runtime_libraries"])
            return cls(**data)
        except (KeyError, TypeError) as err:
            raise MalformedError(f"{origin}: not a build record of schema {SCHEMA}: {err}") from err


def _object(text: str, *, origin: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as err:
        raise MalformedError(f"{origin}: not JSON: {err}") from err
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise MalformedError(f"{origin}: schema {found!r}, expected {SCHEMA}")
    return data


def read_manifest(path: Path) -> Manifest:
    """Read `_bundle.json`."""
    return Manifest.from_json(path.read_text(encoding="utf-8"), origin=str(path))
