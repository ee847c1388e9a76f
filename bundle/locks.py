"""Locks between runs of this tool. The kernel drops them with the processes that hold them, however those end."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bundle.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def exclusive(lock: Path, *, backend: str, doing: str) -> Iterator[None]:
    """Hold a lock file; `doing` says what, for the run that finds it held.

    Programs started by `bundle.proc.run` hold it as well, so that what a killed run leaves running keeps the next one
    out of its folders.

    Raises:
        RefusedError: another run holds it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise RefusedError(
                f"{backend}: another run is {doing}, or a program that a killed run left (lock file {lock})",
                hint="wait for it to end, then run this again",
            ) from err
        os.set_inheritable(stream.fileno(), True)
        yield
