"""Temporary folders of gigabytes: they go with the run that made them, or, if that was killed, with the next one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_OWNER = ".owner"
# What multiprocessing names its sockets below TMPDIR, and what the system takes of a socket's name.
_SOCKET = "pymp-12345678/listener-12345678"
_LONGEST = 107


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Yield a new folder below the system's temporary one, and remove it at the end.

    Folders of this prefix whose runs are gone are removed first. A run that is still there, or a program that it left
    running, holds a lock in its folder, as with `bundle.locks`.
    """
    _sweep(prefix)
    with tempfile.TemporaryDirectory(prefix=prefix) as name:
        folder = Path(name).resolve()
        # Locked before it has the name that others look for: nobody finds a live folder without a lock.
        unnamed = folder / f"{_OWNER}.new"
        with unnamed.open("w") as owner:
            # Some file systems of clusters have no locks: nobody takes such a folder away but its own run.
            with suppress(OSError):
                fcntl.flock(owner, fcntl.LOCK_EX)
                os.set_inheritable(owner.fileno(), True)
                unnamed.rename(folder / _OWNER)
            try:
                yield folder
            finally:
                # What cannot be removed, the folder's own removal is about to tell.
                with suppress(OSError):
                    _empty(folder)


def temporary_variables(folder: Path) -> dict[str, str]:
    """Return what makes programs put their temporary files into a folder; nothing where its name is too long for that.

    Processes exchange tensors by sockets in there, and the name of a socket is short.
    """
    return {"TMPDIR": str(folder)} if len(os.fsencode(folder / _SOCKET)) <= _LONGEST else {}


def _sweep(prefix: str) -> None:
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{prefix}*")):
        # Another user's, one that is just being made, or one that another run is sweeping: none of ours.
        with suppress(OSError):
            if folder.lstat().st_uid == os.geteuid() and not folder.is_symlink():
                _remove_abandoned(folder)


def _remove_abandoned(folder: Path) -> None:
    with (folder / _OWNER).open("r+") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _empty(folder)
        # It refuses links.
        shutil.rmtree(folder)


def _empty(folder: Path) -> None:
    """Remove all but the lock, which goes last: of a removal that is killed, the next run finds the rest by it."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != _OWNER:
            entry.unlink(missing_ok=True)
