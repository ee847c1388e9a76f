"""Gives stock torch its own libraries back, by renaming the originals over the links.

The siblings come first and libtorch_python.so last: until then Python enters by the bundle's one, which takes nothing
from torch/lib but libgomp. Needs neither space on the disk nor torch_fl.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_fl_boot.relink.apply import record_rows
from torch_fl_boot.relink.errors import OriginalLostError
from torch_fl_boot.relink.files import flush, is_empty, is_original, remove_tree, replace, write_new
from torch_fl_boot.relink.journal import BACKUP, JOURNALS, README, READY, RECORD, RESTORING, SCRIPT, SUFFIX, enter_phase
from torch_fl_boot.relink.look import Found, look
from torch_fl_boot.relink.record import find_record, with_changes, without_changes

if TYPE_CHECKING:
    from pathlib import Path

    from torch_fl_boot.relink.journal import Change, Journal, Place
    from torch_fl_boot.relink.look import State


@dataclass(frozen=True, kw_only=True)
class Undone:
    """The names that are the originals again, and where a backup of another torch was set aside, if there was one."""

    names: tuple[str, ...] = ()
    aside: Path | None = None


def undo(place: Place) -> Undone:
    """Undo a relink, finished or not; a torch that was replaced underneath keeps its files.

    Raises:
        OriginalLostError: an original that is wanted back is not there, or was altered; nothing was changed.
        JournalError: the journal cannot be read.
        OSError: the system refused a step.
    """
    clear_stage(place)
    state = look(place, hashes=True)
    if state.journal is None:
        return Undone()
    journal = state.journal
    wanted, strays = _sort(state, journal)
    lost = [change.name for change in wanted if not _is_kept(place, change)]
    if lost:
        raise OriginalLostError([f"{name}: missing or altered" for name in lost], backup=place.backup)
    enter_phase(place.backup, RESTORING)
    # Those without an original need no order: nothing but the bundle leads to them.
    for change in sorted(wanted, key=lambda change: change.name == journal.entry):
        if change.name == journal.entry:
            flush(place.lib)
        replace(place.backup / change.name, place.lib / change.name)
    for change in strays:
        (place.lib / change.name).unlink()
    flush(place.lib)
    place.hook.unlink(missing_ok=True)
    _restore_record(place, journal)
    if _is_replaced(state):
        return Undone(names=tuple(change.name for change in wanted), aside=_set_aside(place, state))
    _remove_backup(place)
    return Undone(names=tuple(change.name for change in journal.changes if change.original is not None))


def clear_stage(place: Place) -> None:
    """Remove what a process killed while preparing has left."""
    remove_tree(place.stage)
    if is_empty(place.backup):
        place.backup.rmdir()
    for path in (place.hook, *place.site.glob("torch-*.dist-info/RECORD")):
        partial = path.with_name(path.name + SUFFIX)
        if partial.exists():  # a read-only file system refuses to unlink even what is not there
            partial.unlink()


def _is_replaced(state: State) -> bool:
    """Whether somebody put other files in place; a torch with another version but all of our links is not."""
    originals = [what for change, what in state.found if change.original is not None]
    other_version = state.journal is not None and state.torch != state.journal.torch
    return Found.FOREIGN in originals or (other_version and any(what is not Found.LINK for what in originals))


def _sort(state: State, journal: Journal) -> tuple[list[Change], list[Change]]:
    """Return the changes whose originals are wanted back, and those whose links merely go."""
    same_torch = state.torch == journal.torch or not _is_replaced(state)
    wanted = [
        change
        for change, what in state.found
        if change.original is not None and what in (Found.LINK, Found.NOTHING) and same_torch
    ]
    strays = [change for change, what in state.found if what is Found.LINK and change not in wanted]
    return wanted, strays


def _is_kept(place: Place, change: Change) -> bool:
    return change.original is not None and is_original(place.backup / change.name, change.original)


def _restore_record(place: Place, journal: Journal) -> None:
    path, saved = place.site / journal.record, place.backup / RECORD
    if not journal.record or not path.is_file() or not saved.is_file():
        return
    text, before = path.read_bytes().decode(), saved.read_bytes().decode()
    replaced, added = record_rows(journal)
    if text == with_changes(before, replaced=replaced, added=added):
        replace(saved, path)
    elif text != before:
        partial = path.with_name(path.name + SUFFIX)
        write_new(partial, without_changes(text, before, added=added).encode(), like=path)
        partial.replace(path)
    flush(path.parent)


def _remove_backup(place: Place) -> None:
    """Remove the backup, the journal last: until then the next run knows what this is."""
    backup = place.backup
    remove_tree(backup / READY)
    keep = set(JOURNALS.values())
    for path in [path for path in backup.iterdir() if path.name not in keep]:
        path.unlink()
    for name in keep:
        (backup / name).unlink(missing_ok=True)
    backup.rmdir()
    flush(place.lib)


def _set_aside(place: Place, state: State) -> Path:
    """Rename the backup out of the way, and have the installer remove it together with the torch that is there now."""
    version = state.journal.torch if state.journal is not None else ""
    names = (f"{BACKUP}.stale-{version}{suffix}" for suffix in ("", *(f"-{number}" for number in range(2, 1000))))
    aside = next(path for name in names if not os.path.lexists(path := place.lib / name))
    remove_tree(place.backup / READY)
    for name in (SCRIPT, README):
        (place.backup / name).unlink(missing_ok=True)
    place.backup.rename(aside)
    flush(place.lib)
    record = find_record(place.site, state.torch or "")
    if record:
        path = place.site / record
        rows = [f"torch/lib/{aside.name}/{kept.name}" for kept in sorted(aside.iterdir())]
        partial = path.with_name(path.name + SUFFIX)
        write_new(partial, with_changes(path.read_bytes().decode(), replaced=(), added=rows).encode(), like=path)
        partial.replace(path)
    return aside
