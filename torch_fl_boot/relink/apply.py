"""Relinks a torch, one step at a time, so that a process killed at any of them leaves a torch that works.

1. Everything is prepared in a directory of its own: hard links to the originals, the links to come, journal, script.
2. One rename publishes it as `_orig_backup`. From here on the journal says what is to be completed or undone.
3. RECORD and the healing hook.
4. One rename switches libtorch_python.so, by which Python enters. The bundle's one looks for its siblings in the bundle
   first, and stock's looks for them in torch/lib, where they still are: no process sees a mixture.
5. When all processes that entered by stock's one have its siblings, the other names follow.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from torch_fl_boot.relink.files import adopt, describe, flush, keep, links_to, remove_tree, replace, write_new
from torch_fl_boot.relink.grace import wait_for_stragglers
from torch_fl_boot.relink.journal import (
    BACKUP,
    HOOK,
    JOURNALS,
    README,
    READY,
    RECORD,
    RELINKED,
    RELINKING,
    SCHEMA,
    SCRIPT,
    SUFFIX,
    Change,
    Journal,
    Place,
    enter_phase,
    to_json,
)
from torch_fl_boot.relink.leftover import HOOK_TEXT, README_TEXT, restore_script
from torch_fl_boot.relink.record import find_record, with_changes

if TYPE_CHECKING:
    from pathlib import Path

    from torch_fl_boot.relink.plan import RelinkPlan


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Whose originals, and whose bundle: version of torch, backend, sha256 of the bundle's manifest."""

    torch: str
    backend: str
    bundle: str


def prepare(place: Place, plan: RelinkPlan, identity: Identity) -> Journal:
    """Write everything into the stage directory; torch itself stays as it is.

    Raises:
        OSError: a full disk or a read-only tree.
    """
    stage, ready = place.stage, place.stage / READY
    remove_tree(stage)
    for folder in (stage, ready):
        folder.mkdir()
        adopt(folder, place.lib)
    record = find_record(place.site, identity.torch)
    journal = Journal(
        schema=SCHEMA,
        torch=identity.torch,
        backend=identity.backend,
        bundle=identity.bundle,
        entry=plan.entry,
        changes=tuple(_prepare_change(place, name, link) for name, link in plan.links),
        record=record,
    )
    if record:
        keep(place.site / record, stage / RECORD)
    model = place.torch / "__init__.py"
    write_new(stage / SCRIPT, restore_script(), like=model)
    write_new(stage / README, README_TEXT.format(script=quote(str(place.backup / SCRIPT))).encode(), like=model)
    write_new(stage / JOURNALS[RELINKING], to_json(journal), like=model)
    flush(ready)
    flush(stage)
    return journal


def _prepare_change(place: Place, name: str, link: str) -> Change:
    path = place.lib / name
    (place.stage / READY / name).symlink_to(link)
    if not os.path.lexists(path):
        return Change(name=name, link=link, original=None)
    keep(path, place.stage / name)
    return Change(name=name, link=link, original=describe(place.stage / name))


def publish(place: Place) -> None:
    """Make the prepared directory the backup."""
    place.stage.rename(place.backup)
    flush(place.lib)


def carry_on(place: Place, journal: Journal) -> tuple[int, ...]:
    """Do what the journal says, from wherever it was left; return the processes that the last step has to wait for.

    Where there are such, Python processes run on the bundle already, and the next run finishes.

    Raises:
        OSError: the system refused a step.
    """
    model = place.torch / "__init__.py"
    if journal.record:
        saved = (place.backup / RECORD).read_bytes().decode()
        replaced, added = record_rows(journal)
        _put(
            place.site / journal.record, with_changes(saved, replaced=replaced, added=added), like=place.backup / RECORD
        )
    _put(place.hook, HOOK_TEXT, like=model)
    entry = [change for change in journal.changes if change.name == journal.entry]
    others = [change for change in journal.changes if change.name != journal.entry]
    for change in entry:
        _switch(place, change)
    flush(place.lib)
    if entry and (pids := wait_for_stragglers(place.lib, place.backup, journal.entry)):
        return pids
    for change in others:
        _switch(place, change)
    flush(place.lib)
    enter_phase(place.backup, RELINKED)
    remove_tree(place.backup / READY)
    return ()


def _put(path: Path, text: str, *, like: Path) -> None:
    partial = path.with_name(path.name + SUFFIX)
    write_new(partial, text.encode(), like=like)
    partial.replace(path)
    flush(path.parent)


def _switch(place: Place, change: Change) -> None:
    path, kept, ready = place.lib / change.name, place.backup / change.name, place.backup / READY / change.name
    if links_to(path, change.link):
        return
    if change.original is not None and not os.path.lexists(kept):
        keep(path, kept)  # a restore had begun
    if not links_to(ready, change.link):
        ready.parent.mkdir(exist_ok=True)
        ready.unlink(missing_ok=True)
        ready.symlink_to(change.link)
    replace(ready, path)


def record_rows(journal: Journal) -> tuple[list[str], list[str]]:
    """Return the paths that RECORD shall list without hash, and those that it shall list besides."""
    lib, backup = "torch/lib", f"torch/lib/{BACKUP}"
    replaced = [f"{lib}/{change.name}" for change in journal.changes if change.original is not None]
    added = [f"{lib}/{change.name}" for change in journal.changes if change.original is None]
    kept = [change.name for change in journal.changes if change.original is not None]
    added += [f"{backup}/{name}" for name in (*kept, *JOURNALS.values(), SCRIPT, README, RECORD)]
    added += [f"{backup}/{READY}/{change.name}" for change in journal.changes]
    return replaced, [*added, HOOK]
