"""The journal of a relinked torch: what was replaced by what, and whether that is still going on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from torch_fl_boot.paths import is_plain_name
from torch_fl_boot.relink.errors import JournalError
from torch_fl_boot.relink.files import Original, flush
from torch_fl_boot.typed import ShapeError, load_json, read_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = 1
BACKUP = "_orig_backup"
STAGE = ".flagos_stage"
READY = "ready"
SCRIPT = "restore.pyz"
README = "README.txt"
RECORD = "RECORD"
HOOK = "torch_fl_relinked.pth"
SUFFIX = ".flagos"
RELINKING, RELINKED, RESTORING = PHASES = "relinking", "relinked", "restoring"
# The phase is the file's name: changing it is one rename, which needs no space on a full disk.
JOURNALS = {phase: f"journal.{phase}.json" for phase in PHASES}


@dataclass(frozen=True, kw_only=True)
class Change:
    """One name in torch/lib: the text of the link that it becomes, and what it was, or None if it is new."""

    name: str
    link: str
    original: Original | None


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The content of the journal file, whose name tells the phase.

    `entry` is the library by which Python enters, or "" where no core library is replaced; `torch` is the full version
    that the originals belong to, `bundle` the sha256 of the bundle's `_bundle.json`; `record` is torch's RECORD,
    relative to site-packages, or "".
    """

    schema: int
    torch: str
    backend: str
    bundle: str
    entry: str
    changes: tuple[Change, ...]
    record: str


@dataclass(frozen=True, kw_only=True)
class Place:
    """The directories of one installed torch."""

    torch: Path

    @property
    def lib(self) -> Path:
        """The directory of its libraries."""
        return self.torch / "lib"

    @property
    def site(self) -> Path:
        """The site-packages directory that holds it."""
        return self.torch.parent

    @property
    def backup(self) -> Path:
        """Where the originals are kept; it is there exactly while torch is relinked."""
        return self.lib / BACKUP

    @property
    def stage(self) -> Path:
        """Where the backup is prepared; what is left of it by a killed process means nothing."""
        return self.lib / STAGE

    @property
    def hook(self) -> Path:
        """The file that heals torch when torch_fl has been uninstalled."""
        return self.site / HOOK


def read_journal(backup: Path) -> tuple[str, Journal]:
    """Return phase and journal of a backup directory.

    Raises:
        JournalError: there is none, or it is not a journal of this schema.
    """
    phase = next((phase for phase, name in JOURNALS.items() if (backup / name).is_file()), RELINKED)
    path = backup / JOURNALS[phase]
    try:
        data = load_json(path.read_text(encoding="utf-8"))
        if isinstance(data, dict) and data.get("schema") != SCHEMA:
            raise JournalError(path, f"schema {data.get('schema')!r}, expected {SCHEMA}")
        journal = read_record(Journal, data)
    except (OSError, UnicodeDecodeError, ShapeError) as err:
        raise JournalError(path, str(err)) from err
    if faults := "; ".join(_faults(journal)):
        raise JournalError(path, faults)
    return phase, journal


def _faults(journal: Journal) -> Iterator[str]:
    """Yield what no dataclass can tell: names that lead out of their folder, or do not fit together."""
    names = [change.name for change in journal.changes]
    # The version becomes part of a folder's name.
    if strange := [name for name in (*names, journal.torch) if not is_plain_name(name)]:
        yield f"not plain names: {', '.join(map(repr, strange))}"
    if journal.entry and journal.entry not in names:
        yield f"entry {journal.entry!r} is not among the changes"
    folder, _, name = journal.record.rpartition("/")
    if journal.record and not (name == RECORD and folder.endswith(".dist-info") and is_plain_name(folder)):
        yield f"record {journal.record!r} is not that of a distribution"


def to_json(journal: Journal) -> bytes:
    """Return the content of a journal file."""
    return (json.dumps(asdict(journal), indent=1, sort_keys=True) + "\n").encode()


def enter_phase(backup: Path, phase: str) -> None:
    """Note what is being done from now on."""
    for other, name in JOURNALS.items():
        if other != phase and (backup / name).exists():
            (backup / name).replace(backup / JOURNALS[phase])
    flush(backup)
