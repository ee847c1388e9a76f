"""Waits for processes that are in the middle of loading stock torch's core.

The loader opens libtorch_python, then looks for its siblings one after the other. Once libtorch_python.so leads to the
bundle, newcomers take everything from there; a process that opened the stock one just before still needs the stock
siblings, which therefore stay until it has them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl_boot.elf import NotElfError, read_dynamic
from torch_fl_boot.maps import mapped_libraries

if TYPE_CHECKING:
    from collections.abc import Iterator

# Between open and mmap a process shows in no map; and there may be processes that /proc does not show.
SETTLE = 0.25
PATIENCE = 20.0
_PAUSE = 0.05
_PROC = Path("/proc")


def wait_for_stragglers(lib: Path, backup: Path, entry: str) -> tuple[int, ...]:
    """Wait until all processes that mapped stock torch's `entry` have its siblings too; return those that lack some."""
    siblings = _siblings(backup, entry)
    deadline = time.monotonic() + PATIENCE
    time.sleep(SETTLE)
    # The kernel shows the file itself: that in torch/lib, or what a link of the installer's leads to.
    paths = (str(lib.resolve() / entry), str((backup / entry).resolve()))
    while pids := tuple(_stragglers(paths, siblings)):
        if time.monotonic() > deadline:
            return pids
        time.sleep(_PAUSE)
    return ()


def _siblings(backup: Path, entry: str) -> frozenset[str]:
    """Return the kept originals that the entry leads to, itself included."""
    seen: set[str] = set()
    todo = [entry]
    while todo:
        name = todo.pop()
        if name in seen or not (backup / name).is_file():
            continue
        seen.add(name)
        try:
            todo += read_dynamic(backup / name).needed
        except NotElfError:
            continue
    return frozenset(seen)


def _stragglers(paths: tuple[str, ...], siblings: frozenset[str]) -> Iterator[int]:
    for process in _PROC.iterdir():
        if not process.name.isdigit():
            continue
        try:
            maps = os.fsdecode((process / "maps").read_bytes())
        except OSError:  # it ended, or is another user's
            continue
        if not any(Path(path).name in maps for path in paths):  # most processes; parsing takes longer
            continue
        mapped = mapped_libraries(maps)
        if any(path in mapped.get(Path(path).name, ()) for path in paths) and siblings - mapped.keys():
            yield int(process.name)
