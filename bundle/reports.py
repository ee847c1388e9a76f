"""Results of verifications, and the folder of reports that keeps them: `reports/verify-<backend>.json` and its kin."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, fields
from typing import TYPE_CHECKING

from bundle.errors import MalformedError
from bundle.testrun import Counts
from bundle.workspace import put_text
from torch_fl_boot.typed import load_json, read_record

if TYPE_CHECKING:
    from pathlib import Path

    from bundle.workspace import Workspace

SCHEMA = 1
STRATEGIES = ("preload", "relink")
HEADER = (
    *("backend", "wheel", "MB", "files", "devices", "passed", "failed", "known", "aborted", "skipped"),
    *("operators", "verdict"),
)


@dataclass(frozen=True, kw_only=True)
class Verification(Counts):
    """The result; its fields are the keys of its report, see `file_name`. Sizes in bytes."""

    backend: str
    forged: bool
    wheel: str
    wheel_bytes: int
    bundle_files: int
    devices: int
    torch: str
    strategy: str
    accuracy: dict[str, float]
    problems: tuple[str, ...]
    suite: str = "full"
    pytest_arguments: tuple[str, ...] = ()
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Refuse what another version of this tool wrote."""
        if self.schema != SCHEMA:
            raise ValueError(f"schema {self.schema!r}, expected {SCHEMA}")

    @property
    def _kind(self) -> tuple[str, ...]:
        partial = "partial" if self.pytest_arguments else ""
        usual = ("", STRATEGIES[0])
        return tuple(word for word in ("forged" if self.forged else "", self.strategy, partial) if word not in usual)

    @property
    def file_name(self) -> str:
        """The report's: `verify-<backend>.json`, with `-forged`, `-relink` and `-partial` where that holds.

        Results of different kinds never replace each other: those of hardware, above all, are not easily had again. The
        core and the full suite are one kind: the later run of either counts.
        """
        return "-".join(("verify", self.backend, *self._kind)) + ".json"

    @property
    def title(self) -> str:
        """The backend, and what sets this result apart from others of it."""
        remarks = (*self._kind, *([self.suite] if self.suite != "full" and not self.pytest_arguments else []))
        return f"{self.backend} ({', '.join(remarks)})" if remarks else self.backend

    def row(self) -> tuple[str, ...]:
        """Return the table row for `HEADER`."""
        numbers = (self.devices, self.passed, self.failed, self.known, self.aborted, self.skipped)
        size = f"{self.wheel_bytes / 1e6:.1f}"
        verdict = "failed" if self.problems else "ok"
        covered = f"{self.operators.percent:.1f} %" if self.operators else "-"
        return (self.title, self.wheel, size, str(self.bundle_files), *map(str, numbers), covered, verdict)


def write_report(result: Verification, workspace: Workspace) -> Path:
    """Write a result into the folder of reports and return its path."""
    path = workspace.reports / result.file_name
    put_text(path, json.dumps(asdict(result), indent=2, sort_keys=True) + "\n")
    return path


def read_reports(workspace: Workspace) -> dict[Path, Verification]:
    """Return what `write_report` wrote so far.

    Raises:
        MalformedError: a file among them is no such report.
    """
    return {path: _read_report(path) for path in sorted(workspace.reports.glob("verify-*.json"))}


def _read_report(path: Path) -> Verification:
    try:
        data = load_json(path.read_text(encoding="utf-8"))
        if isinstance(data, dict):
            # Reports of older versions lack the fields that came later, which all have defaults.
            later = {field.name: field.default for field in fields(Verification) if field.default is not MISSING}
            data = {**{name: list(of) if isinstance(of, tuple) else of for name, of in later.items()}, **data}
        return read_record(Verification, data)
    except ValueError as err:
        error = MalformedError(f"{path}: not a report of a verification: {err}")
        error.hint = "remove it, or run that verification again"
        raise error from err
