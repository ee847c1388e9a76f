"""The command `maps`: which file each library of torch in a process comes from."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl_boot.errors import FlagosImportError
from torch_fl_boot.maps import canonical_name, mapped_libraries
from torch_fl_boot.paths import exists
from torch_fl_boot.plan import CORE_NAMES, GLOBAL_DEPS
from torch_fl_boot.relink.journal import BACKUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch_fl_boot.doctor_install import Installation

CHILD_SECONDS = 600
BUNDLE, PLUGIN, STOCK, ELSEWHERE = "bundle", "plugin", "stock torch", "elsewhere"
_PREFIXES = ("libtorch", "libc10", "libshm.", "libcaffe2", "libflagos", "libgomp")
_MARK = b"\ntorch_fl maps follow\n"
_PROGRAM = f"""
import torch
with open("/proc/self/maps", "rb") as stream, open(1, "wb", closefd=False) as out:
    out.write({_MARK!r} + stream.read())
"""
_TAIL = 1500


class MapsError(FlagosImportError):
    """The maps of a process cannot be had."""


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """One library: its canonical name, the files it is mapped from, and whose each is, in the same order."""

    name: str
    paths: tuple[str, ...]
    owners: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Maps:
    """The answer of `maps`; `core` is whose core runs: "bundle", "stock torch", "elsewhere", "mixed", or "none"."""

    process: int | None
    core: str
    libraries: tuple[Mapped, ...]
    problems: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield the answer as text."""
        for library in self.libraries:
            for path, owner in zip(library.paths, library.owners, strict=True):
                yield f"{library.name:<28} {owner:<12} {path}"
        yield f"core: {self.core}"
        yield from (f"problem: {problem}" for problem in self.problems)


def maps_of_process(process: int) -> str:
    """Return the text of /proc/PID/maps.

    Raises:
        MapsError: no such process, or one of another user.
    """
    path = Path("/proc") / str(process) / "maps"
    try:
        return os.fsdecode(path.read_bytes())
    except (FileNotFoundError, ProcessLookupError) as err:
        if not exists(Path("/proc/self")):
            raise MapsError("there is no /proc", hint="mount /proc in this container or chroot") from err
        raise MapsError(f"there is no process {process}: no {path}", hint="look for its number with `ps`") from err
    except OSError as err:
        raise MapsError(
            f"{path} cannot be read: {err.strerror}", hint=f"run this command as the user of process {process}, or root"
        ) from err


def maps_of_child(environ: Mapping[str, str]) -> str:
    """Import torch in a child process and return its maps.

    Raises:
        MapsError: the child could not import torch; its last words are kept.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env=environ,
            capture_output=True,
            timeout=CHILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as err:
        what = f"`import torch` in a child process did not end within {CHILD_SECONDS} s"
        raise MapsError(what, hint="run `python -m torch_fl doctor`") from err
    _, mark, text = done.stdout.partition(_MARK)
    if done.returncode or not mark:
        words = done.stderr.decode(errors="replace").strip()[-_TAIL:] or "(no words)"
        what = f"`import torch` in a child process ended with exit status {done.returncode}:\n{words}"
        raise MapsError(what, hint="run `python -m torch_fl doctor`, which does not import torch")
    return os.fsdecode(text)


def describe_maps(text: str, installation: Installation | None, process: int | None) -> Maps:
    """Say whose each library is. Pure, but for resolving links of the installation's folders."""
    homes = _homes(installation)
    bundled = {file.name for file in installation.manifest.files} if installation and installation.manifest else set()
    found: dict[str, list[str]] = {}
    for name, paths in mapped_libraries(text).items():
        canonical = canonical_name(name)
        if canonical.startswith(_PREFIXES) or name in bundled:
            found.setdefault(canonical, []).extend(paths)
    libraries = tuple(
        Mapped(name=name, paths=tuple(paths), owners=tuple(_owner(path, homes) for path in paths))
        for name, paths in sorted(found.items())
    )
    problems = tuple(_problems(libraries, installation))
    return Maps(process=process, core=_core(libraries, problems), libraries=libraries, problems=problems)


def _homes(installation: Installation | None) -> dict[str, str]:
    if installation is None:
        return {}
    homes = {str(installation.bundle.resolve()): BUNDLE, str(installation.package.resolve() / "lib"): PLUGIN}
    if installation.stock is not None:
        homes[str(installation.stock.lib.resolve())] = STOCK
        homes[str(installation.stock.grafted.resolve())] = STOCK
        homes[str(installation.stock.lib.resolve() / BACKUP)] = STOCK
    return homes


def _owner(path: str, homes: Mapping[str, str]) -> str:
    return homes.get(str(Path(path).parent), ELSEWHERE)


def _problems(libraries: Sequence[Mapped], installation: Installation | None) -> Iterator[str]:
    """Yield what makes the core a mixture: two copies of a library, or a library from another place than the rest."""
    # Every torch opens its own stub of that name by path; it holds no code.
    twice = [library for library in libraries if len(library.paths) > 1 and library.name != GLOBAL_DEPS]
    if twice:
        yield from (f"{item.name} is mapped {len(item.paths)} times: {', '.join(item.paths)}" for item in twice)
        return
    core = [library for library in libraries if library.name in CORE_NAMES and library.name != GLOBAL_DEPS]
    lent = _lent_by_stock(installation)
    folders = {str(Path(item.paths[0]).parent): item.name for item in core if item.name not in lent}
    if len(folders) > 1:
        yield "the core comes from several folders: " + ", ".join(f"{name} from {at}" for at, name in folders.items())


def _lent_by_stock(installation: Installation | None) -> set[str]:
    """Return the core libraries that the bundle leaves to stock torch on purpose."""
    if installation is None or installation.manifest is None:
        return set()
    bundled = {file.name for file in installation.manifest.files}
    return {name for name in CORE_NAMES if name not in bundled} if bundled & set(CORE_NAMES) else set()


def _core(libraries: Sequence[Mapped], problems: Sequence[str]) -> str:
    if problems:
        return "mixed"
    owners = [library.owners[0] for library in libraries if library.name == "libc10.so"]
    return owners[0] if owners else "none"
