"""`_bundle.json` and `_build.json`: what a wheel says of itself.

`_build.json` is written by CMake when the plugin is compiled; `_bundle.json` by the bundle stage. The fields are the
runtime's (torch_fl_boot/manifest.py), which reads both and knows no backend by name: writer and reader cannot drift
apart. Here is what the build tool alone needs: writing, and reading from within a wheel.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from bundle.errors import MalformedError
from torch_fl_boot import manifest as runtime
from torch_fl_boot.manifest import BUILD_FILE, BUNDLE_FILE, SCHEMA, BundledFile, LoadStep
from torch_fl_boot.paths import is_plain_name
from torch_fl_boot.typed import ShapeError, load_json

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BUILD_FILE", "BUNDLE_FILE", "BuildRecord", "BundledFile", "LoadStep", "Manifest", "read_manifest"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Manifest(runtime.Manifest):
    """The content of `_bundle.json`; paths never appear, only names relative to the package."""

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
        if leading := [name for name in names if not is_plain_name(name)]:
            raise MalformedError(f"{origin}: not plain names: {', '.join(map(repr, leading))}")
        return manifest


@dataclass(frozen=True, kw_only=True)
class BuildRecord(runtime.BuildRecord):
    """The content of `_build.json`: what the plugin was compiled for, and against which torch."""

    schema: int = SCHEMA

    @classmethod
    def from_json(cls, text: str, *, origin: str) -> BuildRecord:
        """Parse the file's text; MalformedError as for `Manifest.from_json`."""
        return _parsed(cls, text, origin=origin, what="a build record")


def _parsed(kind: type[T], text: str, *, origin: str, what: str) -> T:
    try:
        return runtime.shaped(kind, load_json(text), what)
    except ShapeError as err:
        raise MalformedError(f"{origin}: {err}") from err


def read_manifest(path: Path) -> Manifest:
    """Read `_bundle.json`; MalformedError as for `Manifest.from_json`, also for bytes that are not UTF-8."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as err:
        raise MalformedError(f"{path}: not UTF-8: {err}") from err
    return Manifest.from_json(text, origin=str(path))
