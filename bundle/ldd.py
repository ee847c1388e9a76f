"""What the dynamic loader would find for each library of an installed wheel, by `ldd`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from bundle.proc import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LINE = re.compile(r"\s+(?P<soname>\S+) => (?P<path>/\S+|not found)")


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """One needed library of one file; `path` is None where the loader finds nothing."""

    file: str
    soname: str
    path: Path | None


def parse_ldd(file: str, output: str) -> tuple[Resolution, ...]:
    """Read the output of `ldd` for one file."""
    return tuple(
        Resolution(
            file=file,
            soname=match["soname"],
            path=None if match["path"] == "not found" else Path(match["path"]),
        )
        for match in map(_LINE.match, output.splitlines())
        if match
    )


def resolve_libraries(folder: Path, environ: Mapping[str, str]) -> tuple[Resolution, ...]:
    """Run `ldd` on every shared object under a folder.

    Raises:
        ToolError: ldd is missing or refuses a file.
    """
    found: list[Resolution] = []
    for path in sorted(folder.rglob("*.so*")):
        found += parse_ldd(str(path.relative_to(folder)), run(["ldd", path], env=environ).stdout)
    return tuple(found)


def complaints(
    resolutions: Iterable[Resolution], *, allowed: Iterable[Path], drivers: Iterable[str]
) -> tuple[str, ...]:
    """Return what is wrong: a library found nowhere, or outside the allowed folders; a driver's may be anywhere."""
    patterns, roots = tuple(drivers), tuple(root.resolve() for root in allowed)
    wrong = set()
    for item in resolutions:
        if any(fnmatch(item.soname, pattern) for pattern in patterns):
            continue
        if item.path is None:
            wrong.add(f"{item.file} needs {item.soname}: not found, and not one of the driver's libraries")
        elif not any(item.path.resolve().is_relative_to(root) for root in roots):
            wrong.add(f"{item.file} needs {item.soname}: found at {item.path}, outside the environment and the system")
    return tuple(sorted(wrong))
