"""Who a plugin build and a bundle say they are, and whether they belong together: asked by repack and audit alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from bundle.backends import CORE_LIBRARIES, CoreSource

if TYPE_CHECKING:
    from bundle.backends import Backend, Library
    from bundle.manifest import BuildRecord, Manifest


def python_tag(text: str) -> str:
    """Return a Python version as a wheel tag spells it; "3.12" and "cp312" are the same."""
    return "cp" + text.removeprefix("cp").replace(".", "")


def disagreements(build: BuildRecord, manifest: Manifest) -> tuple[str, ...]:
    """Return in words what the plugin's build record and a bundle's manifest disagree in."""
    pairs = (
        ("backend", build.backend, manifest.backend),
        ("bundle directory", build.bundle_dir, manifest.bundle_dir),
        ("torch base version", base_version(build.torch), base_version(manifest.torch)),
        ("Python", python_tag(build.python), python_tag(manifest.python)),
        ("machine", build.machine, manifest.machine),
        ("runtime prefix", build.runtime_prefix, manifest.runtime_prefix),
        ("runtime libraries", ", ".join(build.runtime_libraries), ", ".join(manifest.runtime_libraries)),
    )
    return tuple(f"{what}: the plugin has {ours}, the bundle {its}" for what, ours, its in pairs if ours != its)


def base_version(text: str) -> str:
    """Return a version without its local label; text that is no version as it is."""
    try:
        return Version(text).public
    except InvalidVersion:
        return text


def holdings(backend: Backend, core: str) -> tuple[Library, ...]:
    """Return the libraries that a bundle of this backend is made of, `core` being its core source."""
    if core == CoreSource.VENDOR.value and backend.core is CoreSource.STOCK:
        return (*backend.libraries, *CORE_LIBRARIES)
    return backend.libraries
