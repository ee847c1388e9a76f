"""Refusals of relink and restore, in the form of all others: what, where, and the next step."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from torch_fl_boot.errors import FlagosImportError

if TYPE_CHECKING:
    from pathlib import Path

USE_PRELOAD = "leave FLAGOS_CORE unset: preload needs no change on disk"
REINSTALL_TORCH = "reinstall torch: pip install --force-reinstall --no-deps torch==<version>"


def restore_command(backup: Path) -> str:
    """Return what gives torch its own libraries back, with or without torch_fl."""
    return f"python -m torch_fl restore, or without torch_fl: python {quote(str(backup / 'restore.pyz'))}"


class RelinkError(FlagosImportError):
    """Base of what relink and restore refuse; nothing was changed, unless the text says so."""


class RelinkRefusedError(RelinkError):
    """This torch, wheel or directory cannot be relinked."""


class OtherBackendError(RelinkError):
    """Torch is relinked to the bundle of another backend's wheel."""

    def __init__(self, *, found: str, wanted: str, backup: Path) -> None:
        super().__init__(
            f"{backup.parent} is relinked to the bundle of backend {found}; this wheel is of backend {wanted}",
            hint=restore_command(backup),
        )


class JournalError(RelinkError):
    """The journal in `_orig_backup` is missing or cannot be read, so what belongs where is not known."""

    def __init__(self, journal: Path, why: str) -> None:
        super().__init__(f"{journal}: {why}; the originals beside it were left alone", hint=REINSTALL_TORCH)


class UnseenError(RelinkError):
    """The system does not show this user what is in torch/lib, so its state is not known; its words are kept."""

    def __init__(self, lib: Path, err: OSError) -> None:
        super().__init__(
            f"{lib} cannot be examined: {err.strerror or err}: {err.filename}",
            hint="run it as a user who may read this, or give this user the right to",
        )


class OriginalLostError(RelinkError):
    """A library of stock torch that the journal names is neither in place nor in the backup, or is damaged."""

    def __init__(self, problems: list[str], *, backup: Path) -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{backup} does not hold what its journal says:\n{lines}", hint=REINSTALL_TORCH)


class ChangeError(RelinkError):
    """The system refused a change; its words are kept, and what was begun has been undone."""

    def __init__(self, lib: Path, err: OSError, *, undone: bool = True) -> None:
        where = f": {err.filename}" if err.filename else ""
        after = "nothing was changed" if undone else "the change was begun; the next run completes or undoes it"
        super().__init__(
            f"{lib} could not be changed ({err.strerror or err}{where}); {after}",
            hint=f"run it as a user who may write there, with space on the disk; or {USE_PRELOAD}",
        )


class LockedError(RelinkError):
    """Another process holds the lock for longer than anybody should wait."""

    def __init__(self, folder: Path, holder: str, *, seconds: float) -> None:
        super().__init__(
            f"waited {seconds:.0f} s for {holder}, which is changing {folder}",
            hint="end that process, and try again; what it began will be completed",
        )
