"""One process at a time changes a torch: a lock on its directory, which leaves no file and ends with its holder."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl_boot.relink.errors import USE_PRELOAD, LockedError, RelinkRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 300.0
_TELL_AFTER = 2.0
_PAUSE = 0.02
_LOCKS = Path("/proc/locks")


@contextmanager
def locked(folder: Path, *, notify: Callable[[str], None], patience: float = PATIENCE) -> Iterator[None]:
    """Hold the lock on a directory; wait at most `patience` seconds, and say whom for after two.

    Raises:
        LockedError: it was not to be had in that time.
        RelinkRefusedError: the directory cannot be opened, or its file system has no locks.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as err:
        raise RelinkRefusedError(f"{folder} cannot be opened: {err.strerror}", hint=USE_PRELOAD) from err
    try:
        _acquire(descriptor, folder, notify, patience)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, folder: Path, notify: Callable[[str], None], patience: float) -> None:
    start, told = time.monotonic(), False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - start
        except OSError as err:
            what = f"the file system of {folder} gives no lock on a directory: {err.strerror}"
            raise RelinkRefusedError(what, hint=USE_PRELOAD) from err
        else:
            return
        if waited >= patience:
            raise LockedError(folder, _holder(descriptor), seconds=patience)
        if waited >= _TELL_AFTER and not told:
            told = True
            notify(f"waiting for {_holder(descriptor)}, which is changing {folder}")
        time.sleep(_PAUSE)


def _holder(descriptor: int) -> str:
    """Name the process that holds the lock; the kernel's list shows it where this process may see it."""
    found = os.fstat(descriptor)
    inode = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        rows = [line.split() for line in _LOCKS.read_text(encoding="ascii").splitlines()]
        pid = next(row[4] for row in rows if row[1] == "FLOCK" and row[5] == inode)
        command = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except (OSError, StopIteration, IndexError):
        return "another process"
    return f"process {pid} ({command.replace(chr(0), ' ').strip()[:80]})"
