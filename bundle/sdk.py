"""Where the vendor's SDK is on the build machine, and where its driver directories will be on a target machine.

The one resolver: an explicit root wins, then `Backend.sdk_variables` in order, then `Backend.sdk_defaults`; the first
one that holds `Backend.sdk_probe` is taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bundle.errors import SdkNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bundle.backends import Backend

_VERSION_FILES = ("version.json", "version.txt", "Version.txt", "VERSION", ".info/version")
_VERSION = re.compile(r"\d+\.\d+(?:\.\w+)*(?:-\w+)?")
_WILDCARD = "*"


@dataclass(frozen=True, kw_only=True)
class Sdk:
    """One SDK.

    `root` is None where the backend does without; `driver_dirs` are those that exist on the build machine, and serve to
    tell a driver's library from a missing one; `target_driver_dirs` are what RUNPATH names, under the target's root.
    `version` is "" when no file of the SDK tells it. `passed_over` are variables that were set, but named no such SDK.
    """

    root: Path | None
    driver_dirs: tuple[Path, ...]
    target_driver_dirs: tuple[str, ...]
    version: str
    passed_over: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    source: str
    root: Path

    def __str__(self) -> str:
        return f"{self.root} ({self.source})"


def resolve_sdk(
    backend: Backend, environ: Mapping[str, str], *, explicit: Path | None = None, target_root: str | None = None
) -> Sdk:
    """Find the SDK of a backend; a backend without `sdk_probe` (cuda) may do without one.

    Args:
        backend: whose SDK.
        environ: where `Backend.sdk_variables` are looked up.
        explicit: the only root to try, if given.
        target_root: root of the SDK on target machines; the backend's first default if None.

    Raises:
        SdkNotFoundError: no root holds the probe file; lists every root that was tried.
    """
    candidates = list(_candidates(backend, environ, explicit))
    accepted = next((one for one in candidates if _accepts(backend, one.root)), None)
    if accepted is None and (backend.sdk_probe or explicit is not None):
        raise SdkNotFoundError(backend.name, map(str, candidates), probe=backend.sdk_probe or "such a directory")
    root = accepted.root.resolve() if accepted else None
    rejected = candidates[: candidates.index(accepted)] if accepted else candidates
    return Sdk(
        root=root,
        driver_dirs=tuple(_existing(backend, root)),
        target_driver_dirs=_on_target(backend, root, target_root),
        version=_version(root) if root else "",
        passed_over=tuple(str(one) for one in rejected if one.source in backend.sdk_variables),
    )


def _candidates(backend: Backend, environ: Mapping[str, str], explicit: Path | None) -> Iterator[_Candidate]:
    if explicit is not None:
        yield _Candidate(source="given", root=explicit)
        return
    for variable in backend.sdk_variables:
        if environ.get(variable):
            yield _Candidate(source=variable, root=Path(environ[variable]))
    for default in backend.sdk_defaults:
        yield _Candidate(source="default", root=Path(default))


def _accepts(backend: Backend, root: Path) -> bool:
    return (root / backend.sdk_probe).exists() if backend.sdk_probe else root.is_dir()


def _expanded(entry: str, root: Path | None) -> list[Path]:
    """Return the directories that an entry of `driver_dirs` stands for under a root; absolute ones stand alone."""
    if entry.startswith("/"):
        return [Path(entry)]
    if root is None:
        return []
    return sorted(root.glob(entry)) if _WILDCARD in entry else [root / entry]


def _existing(backend: Backend, root: Path | None) -> Iterator[Path]:
    for entry in backend.driver_dirs:
        yield from (folder for folder in _expanded(entry, root) if folder.is_dir())


def _on_target(backend: Backend, root: Path | None, target_root: str | None) -> tuple[str, ...]:
    base = target_root or next(iter(backend.sdk_defaults), "")
    entries: list[str] = []
    for entry in backend.driver_dirs:
        if entry.startswith("/"):
            entries.append(entry)
        elif _WILDCARD in entry:
            # Only an SDK at hand can tell what the wildcard stands for.
            entries += [f"{base}/{folder.relative_to(root)}" for folder in _expanded(entry, root) if root]
        else:
            entries.append(f"{base}/{entry}")
    return tuple(dict.fromkeys(entries))


def _version(root: Path) -> str:
    """Return the first version number in one of the usual files, else in the name of the root (/opt/dtk-26.04)."""
    for name in _VERSION_FILES:
        path = root / name
        if path.is_file() and (found := _VERSION.search(path.read_text(encoding="utf-8", errors="replace"))):
            return found[0]
    found = _VERSION.search(root.name)
    return found[0] if found else ""
