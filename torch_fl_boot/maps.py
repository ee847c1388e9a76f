"""Which shared objects this process has mapped, and from where: the facts behind "exactly one libc10"."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from torch_fl_boot.errors import IncompatibleError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MAPS = Path("/proc/self/maps")
_PATH_FIELD = 5
# The one character that the kernel escapes there.
_NEWLINE = "\\012"
_SHARED_OBJECT = re.compile(r"\.so(\.[\w.]+)?$")
# Wheel repair tools put a hash between stem and suffix: libc10-52d951ec.so is a libc10 all the same.
_MANGLED = re.compile(r"-[0-9a-f]{8}(?=\.so)")


def mapped_libraries(maps: str | None = None) -> dict[str, tuple[str, ...]]:
    """Return the mapped shared objects as file name -> paths, each sorted; more than one path is more than one copy.

    `maps` is text in the form of `/proc/self/maps`, which is read when it is None. Paths are the kernel's: symbolic
    links are resolved.

    Raises:
        IncompatibleError: there is no /proc to read.
    """
    if maps is None:
        try:
            maps = os.fsdecode(_MAPS.read_bytes())
        except OSError as err:
            raise IncompatibleError(
                f"torch_fl needs {_MAPS} to tell which libraries this process runs on: {err.strerror}",
                hint="mount /proc in this container or chroot",
            ) from err
    found: dict[str, set[str]] = {}
    for line in maps.split("\n"):  # of what Python takes for the end of a line, file names may hold the rest
        fields = line.split(maxsplit=_PATH_FIELD)
        if len(fields) <= _PATH_FIELD:
            continue
        path = fields[_PATH_FIELD].removesuffix(" (deleted)").replace(_NEWLINE, "\n")
        name = PurePosixPath(path).name
        if path.startswith("/") and _SHARED_OBJECT.search(name):
            found.setdefault(name, set()).add(path)
    return {name: tuple(sorted(paths)) for name, paths in sorted(found.items())}


def canonical_name(name: str) -> str:
    """Return a library's name without the hash that wheel repair tools put into it."""
    return _MANGLED.sub("", name)


def copies_of(names: Iterable[str], mapped: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return canonical name -> mapped paths for those of `names` that are mapped, mangled copies included."""
    wanted = set(names)
    found: dict[str, tuple[str, ...]] = {}
    for name, paths in mapped.items():
        canonical = canonical_name(name)
        if canonical in wanted:
            found[canonical] = tuple(sorted({*found.get(canonical, ()), *paths}))
    return found


def is_mapped(path: Path, mapped: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether this very file is mapped, whatever links lead to it."""
    real = path.resolve()
    return str(real) in mapped.get(real.name, ())
