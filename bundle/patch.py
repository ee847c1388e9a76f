"""Sets the RUNPATH of copied files: one patchelf call per file, and every value read back."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bundle.elf import read_elf, read_library, read_symbols
from bundle.errors import RefusedError, ToolError
from bundle.proc import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bundle.elf import ElfInfo
    from bundle.ui import Reporter

OLDEST = (0, 14, 4)
"""Before this release patchelf wrote wrong names into files that it edited more than once."""
_PAGE_SIZES = {"aarch64": 65536}
"""Bytes; kernels with 64 KiB pages exist, and refuse segments aligned to less."""
_VERSION = re.compile(r"patchelf (\d+(?:\.\d+)+)")


@dataclass(frozen=True, kw_only=True)
class Patchelf:
    """A patchelf that is known to be new enough."""

    path: Path
    version: str


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One file to change, and the RUNPATH that it shall have."""

    path: Path
    runpath: tuple[str, ...]


def find_patchelf(environ: Mapping[str, str]) -> Patchelf:
    """Return the patchelf beside this interpreter, else the first on PATH.

    Raises:
        ToolError: there is none, it is older than `OLDEST`, or it does not tell its version.
    """
    places = [str(Path(sys.executable).parent), environ.get("PATH", "")]
    found = next((path for place in places if (path := shutil.which("patchelf", path=place))), None)
    if found is None:
        raise ToolError(
            f"patchelf not found beside {sys.executable} nor on PATH; install the dependency group `bundle`"
        )
    return check_patchelf(Path(found))


def check_patchelf(path: Path) -> Patchelf:
    """Ask a patchelf for its version; ToolError as for `find_patchelf`."""
    said = run([path, "--version"]).stdout.strip()
    version = _VERSION.search(said)
    wanted = ".".join(map(str, OLDEST))
    if version is None:
        raise ToolError(f"{path} does not tell its version but says {said!r}; expected patchelf {wanted} or newer")
    if tuple(map(int, version[1].split("."))) < OLDEST:
        raise ToolError(
            f"{path} is patchelf {version[1]}, which damages names on repeated edits; expected {wanted} or newer"
        )
    return Patchelf(path=path, version=version[1])


def apply_edit(edit: Edit, patchelf: Patchelf, ui: Reporter | None = None) -> ElfInfo:
    """Give one file its RUNPATH, unless it has exactly that already; return what the file then says of itself.

    DT_RPATH never stays, since the loader would prefer it to LD_LIBRARY_PATH and hand it on. The file must be writable.

    Raises:
        ToolError: patchelf failed, or was killed; the command in the text names the file.
        RefusedError: patchelf reports success, but the file does not hold what it should, or lost something else.
    """
    before = read_elf(edit.path)
    if before.runpath == edit.runpath and not before.rpath:
        return before
    symbols = read_symbols(edit.path)
    # With both tags present patchelf sets both; this is the one case that takes a call more.
    if before.rpath and before.runpath:
        run([patchelf.path, "--remove-rpath", edit.path], ui=ui)
    command: list[str | Path] = [patchelf.path]
    if before.machine in _PAGE_SIZES:
        command += ["--page-size", str(_PAGE_SIZES[before.machine])]
    run([*command, "--set-rpath", ":".join(edit.runpath), edit.path], ui=ui)
    after, symbols_after = read_library(edit.path)
    _verify(edit, before, after, patchelf)
    if symbols_after != symbols:
        raise _damage(edit, patchelf, "its dynamic symbols are no longer the same")
    return after


def _verify(edit: Edit, before: ElfInfo, after: ElfInfo, patchelf: Patchelf) -> None:
    if after.runpath != edit.runpath or after.rpath:
        raise _damage(
            edit,
            patchelf,
            f"RUNPATH is {':'.join(after.runpath)!r} and RPATH {':'.join(after.rpath)!r}, "
            f"expected {':'.join(edit.runpath)!r} and none",
        )
    for field in ("soname", "needed", "version_needs", "machine"):
        if getattr(before, field) != getattr(after, field):
            raise _damage(edit, patchelf, f"{field} was {getattr(before, field)!r}, is {getattr(after, field)!r}")
    smallest = min((_PAGE_SIZES.get(after.machine, 0), *before.load_alignments))
    if any(alignment < smallest for alignment in after.load_alignments):
        raise _damage(edit, patchelf, f"segments are aligned to {after.load_alignments}, expected {smallest} or more")


def _damage(edit: Edit, patchelf: Patchelf, what: str) -> RefusedError:
    return RefusedError(
        f"{edit.path}: {patchelf.path} {patchelf.version} damaged the file: {what}",
        hint="try another release of patchelf; the vendor's original is untouched",
    )
