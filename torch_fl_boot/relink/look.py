"""What state an installed torch is in; reads, and changes nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from torch_fl_boot.relink.files import is_empty, is_original, links_to
from torch_fl_boot.relink.journal import RELINKED, Change, Journal, Place, read_journal
from torch_fl_boot.stock import read_version

if TYPE_CHECKING:
    from pathlib import Path


class Condition(Enum):
    """The states of a torch."""

    STOCK = "stock"
    RELINKED = "relinked"
    UNFINISHED = "unfinished"
    STALE = "stale"
    DANGLING = "dangling"


class Found(Enum):
    """What stands at one name of torch/lib."""

    LINK = "our link"
    ORIGINAL = "the original"
    FOREIGN = "something else"
    NOTHING = "nothing"


@dataclass(frozen=True, kw_only=True)
class State:
    """The state of a torch; `journal` is None for stock, `found` tells by name, `torch` is the version there now.

    `problems` says in words why it is not simply stock or relinked.
    """

    condition: Condition
    torch: str | None
    journal: Journal | None = None
    phase: str = ""
    found: tuple[tuple[Change, Found], ...] = ()
    problems: tuple[str, ...] = ()


def look(place: Place, *, hashes: bool = False) -> State:
    """Read the state; with `hashes`, files that are no links are compared by content, not only by size.

    Raises:
        JournalError: there is a backup whose journal cannot be read.
    """
    version = read_version(place.torch)
    remains = [path for path in (place.stage, place.backup) if os.path.lexists(path)]
    if place.backup not in remains or is_empty(place.backup):
        condition = Condition.UNFINISHED if remains else Condition.STOCK
        left = tuple(f"{path} is left from a process that was killed" for path in remains)
        return State(condition=condition, torch=version, problems=left)
    phase, journal = read_journal(place.backup)
    found = tuple((change, _found(place, change, hashes=hashes)) for change in journal.changes)
    condition, problems = _judge(place, journal, version, phase, found)
    return State(
        condition=condition, torch=version, journal=journal, phase=phase, found=found, problems=tuple(problems)
    )


def _found(place: Place, change: Change, *, hashes: bool) -> Found:
    path, kept = place.lib / change.name, place.backup / change.name
    if links_to(path, change.link):
        return Found.LINK
    if not os.path.lexists(path):
        return Found.NOTHING
    if change.original is None:
        return Found.FOREIGN
    if _same_inode(path, kept):
        return Found.ORIGINAL
    same = is_original(path, change.original) if hashes else path.lstat().st_size == change.original.size
    return Found.ORIGINAL if same else Found.FOREIGN


def _same_inode(path: Path, other: Path) -> bool:
    try:
        return os.path.samestat(path.lstat(), other.lstat())
    except FileNotFoundError:
        return False


def _judge(
    place: Place, journal: Journal, version: str | None, phase: str, found: tuple[tuple[Change, Found], ...]
) -> tuple[Condition, list[str]]:
    if version != journal.torch:
        return Condition.STALE, [f"torch {version} is installed; the backup belongs to torch {journal.torch}"]
    foreign = [change.name for change, what in found if what is Found.FOREIGN]
    if foreign:
        return Condition.STALE, [f"replaced since the relink: {', '.join(foreign)}"]
    if phase != RELINKED:
        return Condition.UNFINISHED, [f"a process was killed, or is still at work, in phase {phase}"]
    undone = [change.name for change, what in found if what is not Found.LINK]
    if undone:
        return Condition.STALE, [f"no longer links: {', '.join(undone)}"]
    dangling = [change.name for change, _ in found if not (place.lib / change.name).exists()]
    if dangling:
        return Condition.DANGLING, [f"links that lead nowhere, torch_fl is gone: {', '.join(dangling)}"]
    return Condition.RELINKED, []
