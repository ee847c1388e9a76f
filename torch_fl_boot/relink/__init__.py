"""Relink: torch/lib leads to the bundle, also for processes that never import torch_fl; restore undoes it.

Whether to relink is the caller's decision; asked to relink, these functions do it or raise. docs/relink.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from torch_fl_boot.elf import NotElfError, read_dynamic
from torch_fl_boot.manifest import BUNDLE_FILE
from torch_fl_boot.relink.apply import Identity, carry_on, prepare, publish
from torch_fl_boot.relink.errors import (
    USE_PRELOAD,
    ChangeError,
    JournalError,
    LockedError,
    OtherBackendError,
    RelinkError,
    RelinkRefusedError,
    UnseenError,
)
from torch_fl_boot.relink.files import sha256
from torch_fl_boot.relink.journal import RELINKING, Place
from torch_fl_boot.relink.lock import PATIENCE, locked
from torch_fl_boot.relink.look import Condition, Found, State, look
from torch_fl_boot.relink.plan import RelinkPlan, plan_relink
from torch_fl_boot.relink.undo import Undone, clear_stage, undo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch_fl_boot.manifest import Manifest
    from torch_fl_boot.stock import StockTorch

__all__ = ["Action", "Condition", "Found", "Outcome", "RelinkError", "State", "relink", "restore", "settle", "state"]


class Action(Enum):
    """What a call did."""

    RELINKED = "relinked"
    RESTORED = "restored"
    NOTHING = "nothing"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a call did to torch/lib.

    `names` are the libraries concerned; `pending` are processes that still load stock torch, which the last step has
    to wait for (Python processes run on the bundle already, the next call finishes); `aside` is where the backup of a
    torch that was replaced underneath has been moved.
    """

    action: Action
    lib: Path
    names: tuple[str, ...] = ()
    pending: tuple[int, ...] = ()
    aside: Path | None = None


def relink(manifest: Manifest, package: Path, stock: StockTorch, *, notify: Callable[[str], None]) -> Outcome:
    """Make torch/lib lead to the bundle of `package` (torch_fl's directory).

    `notify` gets a sentence when another process has to be waited for. Versions of Python and torch are the caller's
    to check. Any number of processes may call this at once.

    Raises:
        RelinkError: it cannot be done, and what was begun has been undone, unless the text says otherwise.
    """
    place = Place(torch=stock.package)
    identity = Identity(torch=stock.version, backend=manifest.backend, bundle=sha256(package / BUNDLE_FILE))
    if _is_done(_glance(place, notify=notify), identity):
        return Outcome(action=Action.NOTHING, lib=place.lib)
    _check_reach(place, package / manifest.bundle_dir, manifest)
    with locked(place.torch, notify=notify):
        return _relink(place, manifest, identity)


def restore(torch: Path, *, notify: Callable[[str], None]) -> Outcome:
    """Give the torch in this directory its own libraries back, byte for byte; torch_fl need not be there.

    Raises:
        RelinkError: as for `relink`.
    """
    place = Place(torch=torch)
    if _glance(place, notify=notify).condition is Condition.STOCK:
        return Outcome(action=Action.NOTHING, lib=place.lib)
    with locked(place.torch, notify=notify):
        try:
            undone = undo(place)
        except OSError as err:
            raise ChangeError(place.lib, err, undone=False) from err
    return Outcome(action=Action.RESTORED, lib=place.lib, names=undone.names, aside=undone.aside)


def settle(torch: Path, *, notify: Callable[[str], None]) -> Outcome:
    """Complete or undo what a killed process left, and wait for nobody; costs two lstat where there is nothing.

    Raises:
        RelinkError: it could not be done; torch works as it is.
    """
    place = Place(torch=torch)
    if not (os.path.lexists(place.backup) or os.path.lexists(place.stage)):
        return Outcome(action=Action.NOTHING, lib=place.lib)
    try:
        if _glance(place, notify=notify, patience=0).condition is not Condition.UNFINISHED:
            return Outcome(action=Action.NOTHING, lib=place.lib)
        with locked(place.torch, notify=notify, patience=0):
            return _settle(place)
    except LockedError:
        return Outcome(action=Action.NOTHING, lib=place.lib)  # it is still at work
    except OSError as err:
        raise ChangeError(place.lib, err, undone=False) from err


def state(torch: Path) -> State:
    """Return the state of the torch in this directory.

    Raises:
        JournalError: there is a backup whose journal cannot be read.
        UnseenError: the system does not show this user what is there.
    """
    return _glance(Place(torch=torch), notify=lambda _: None)


def _glance(place: Place, *, notify: Callable[[str], None], patience: float = PATIENCE) -> State:
    """Look without the lock; what cannot be read may just be on its way, so look again with it."""
    try:
        return look(place)
    except (JournalError, OSError):
        with locked(place.torch, notify=notify, patience=patience):
            return _look(place)


def _look(place: Place) -> State:
    try:
        return look(place)
    except OSError as err:
        raise UnseenError(place.lib, err) from err


def _is_done(found: State, identity: Identity) -> bool:
    return (
        found.condition is Condition.RELINKED
        and found.journal is not None
        and ((found.journal.backend, found.journal.bundle) == (identity.backend, identity.bundle))
    )


def _check_reach(place: Place, bundle: Path, manifest: Manifest) -> None:
    """Refuse where the loader, or a link, would not get from torch/lib to the bundle."""
    for path in (place.torch, place.lib):
        if path.is_symlink():
            raise RelinkRefusedError(
                f"{path} is a link to {path.readlink()}, which other environments may share", hint=USE_PRELOAD
            )
    reached = place.lib / ".." / ".." / "torch_fl" / manifest.bundle_dir
    if not (reached.is_dir() and reached.samefile(bundle)):
        raise RelinkRefusedError(
            f"torch is in {place.site} and torch_fl in {bundle.parent.parent}; expected them side by side",
            hint=f"install both into one environment, or {USE_PRELOAD}",
        )


def _relink(place: Place, manifest: Manifest, identity: Identity) -> Outcome:
    found = _look(place)
    if _is_done(found, identity):
        return Outcome(action=Action.NOTHING, lib=place.lib)
    if (
        found.journal is not None
        and found.journal.backend != identity.backend
        and found.condition is not Condition.STALE
    ):
        raise OtherBackendError(found=found.journal.backend, wanted=identity.backend, backup=place.backup)
    aside = None
    try:
        if found.condition is Condition.UNFINISHED and _is_same(found, identity):
            return _finish(place, found)
        if found.condition is not Condition.STOCK:
            aside = undo(place).aside
        plan = plan_relink(manifest, _needs(place))
        return _begin(place, plan, identity, aside)
    except OSError as err:
        raise ChangeError(place.lib, err, undone=_take_back(place)) from err


def _is_same(found: State, identity: Identity) -> bool:
    return found.phase == RELINKING and found.journal is not None and found.journal.bundle == identity.bundle


def _begin(place: Place, plan: RelinkPlan, identity: Identity, aside: Path | None) -> Outcome:
    clear_stage(place)
    journal = prepare(place, plan, identity)
    publish(place)
    pending = carry_on(place, journal)
    names = tuple(change.name for change in journal.changes)
    return Outcome(action=Action.RELINKED, lib=place.lib, names=names, pending=pending, aside=aside)


def _finish(place: Place, found: State) -> Outcome:
    if found.journal is None:
        raise AssertionError("an unfinished relink has a journal")
    pending = carry_on(place, found.journal)
    names = tuple(change.name for change in found.journal.changes)
    return Outcome(action=Action.RELINKED, lib=place.lib, names=names, pending=pending)


def _settle(place: Place) -> Outcome:
    found = look(place)
    if found.condition is not Condition.UNFINISHED:
        return Outcome(action=Action.NOTHING, lib=place.lib)
    reachable = found.journal is not None and all(
        (place.lib / change.link).exists() for change in found.journal.changes
    )
    if found.phase == RELINKING and reachable:
        return _finish(place, found)
    undone: Undone = undo(place)
    return Outcome(action=Action.RESTORED, lib=place.lib, names=undone.names, aside=undone.aside)


def _take_back(place: Place) -> bool:
    """Undo what was begun; whether that succeeded."""
    try:
        undo(place)
    except (OSError, RelinkError):
        return False
    return True


def _needs(place: Place) -> dict[str, tuple[str, ...]]:
    """Read DT_NEEDED of what is in torch/lib now."""
    return {path.name: _needed(path) for path in sorted(place.lib.glob("*.so*"))}


def _needed(path: Path) -> tuple[str, ...]:
    try:
        return read_dynamic(path).needed
    except (NotElfError, FileNotFoundError):
        return ()
