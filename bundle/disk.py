"""What the system says of full disks: which errors mean one, what a program's output tells of it, and what is free."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# How shutil.Error quotes each of the errors that it collects.
_QUOTED = re.compile(r"\[Errno (\d+)\] ")
_SAID = re.compile("|".join(re.escape(os.strerror(number)) for number in sorted(_FULL)), re.IGNORECASE)
# Of tempfile, whose errno is then that of a missing file: it could write in none of its folders.
_NO_TEMPORARY = "No usable temporary directory"
# Below it, files and not bytes are what a disk is out of.
_FEW_FILES = 100


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One refusal of the system: the files that it is about, the last of them written to; `more` is how many others."""

    names: tuple[str, ...]
    words: str
    full: bool
    more: int = 0


def read_fault(err: OSError) -> Fault:
    """Read an OSError; of shutil.Error, which holds (source, target, words) for each file and no errno, the first."""
    if isinstance(err, shutil.Error) and err.args and isinstance(err.args[0], list) and err.args[0]:
        source, target, why = (str(part) for part in err.args[0][0])
        quoted = _QUOTED.match(why)
        number = int(quoted[1]) if quoted else None
        words = os.strerror(number) if number else why
        return Fault(names=(source, target), words=words, full=number in _FULL, more=len(err.args[0]) - 1)
    names = tuple(str(name) for name in (err.filename, err.filename2) if name is not None)
    words = err.strerror or str(err) or type(err).__name__
    return Fault(names=names, words=words, full=err.errno in _FULL or words.startswith(_NO_TEMPORARY))


def says_full(output: str) -> bool:
    """Whether a program that failed says that a disk is full, or a quota used up."""
    return _SAID.search(output) is not None


def existing(path: Path) -> Path:
    """Return the nearest folder above a path, or the path itself, that is there."""
    path = path.absolute()
    for place in (path, *path.parents):
        # Asking below a folder that we may not enter is an error, too.
        with suppress(OSError):
            if place.is_dir():
                return place
    return Path("/")


def free_bytes(path: Path) -> int | None:
    """Return how much may be written to the file system of a path, made or not; None where it does not say."""
    usage = shutil.disk_usage(existing(path))
    return usage.free if usage.total else None


def describe_free(names: tuple[str, ...]) -> str:
    """Return a phrase about the free space where the last of these files is; without any, wherever the tool writes."""
    if names:
        return f"free now: {_free(existing(Path(names[-1])))}"
    places = [existing(Path())]
    with suppress(OSError):
        places.append(Path(tempfile.gettempdir()))
    return f"free now: {', '.join(map(_free, places))}"


def _free(place: Path) -> str:
    try:
        found = os.statvfs(place)
    except OSError as err:
        return f"unknown in {place} ({err.strerror})"
    text = f"{found.f_bavail * found.f_frsize / 1e6:.0f} MB"
    # Some file systems count no files at all.
    few = found.f_files and found.f_favail < _FEW_FILES
    return f"{text} but only {found.f_favail} files in {place}" if few else f"{text} in {place}"
