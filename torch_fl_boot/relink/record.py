"""The RECORD of stock torch: while torch is relinked it lists what relink added, so that installers remove all of it.

Pure functions over its text, but for finding the file.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def find_record(site: Path, version: str) -> str:
    """Return RECORD's path relative to site-packages, or "" where torch was not installed by a Python installer."""
    for info in sorted(site.glob("torch-*.dist-info")):
        if (info / "RECORD").is_file() and info.name == f"torch-{version.replace('-', '_')}.dist-info":
            return f"{info.name}/RECORD"
    return ""


def with_changes(text: str, *, replaced: Iterable[str], added: Iterable[str]) -> str:
    """Return RECORD without the hashes of what was replaced, and with rows for what was added."""
    without_hash = set(replaced)
    lines = []
    for line in text.splitlines(keepends=True):
        path = path_of(line)
        lines.append(_row(path) if path in without_hash else line)
    known = {path_of(line) for line in lines}
    return "".join([*lines, *(_row(path) for path in added if path not in known)])


def without_changes(text: str, before: str, *, added: Iterable[str]) -> str:
    """Return a RECORD that others have changed meanwhile without our rows; replaced files get their old rows again."""
    gone = set(added) - {path_of(line) for line in before.splitlines()}
    old: Mapping[str, str] = {path_of(line): line for line in before.splitlines(keepends=True)}
    kept = [line for line in text.splitlines(keepends=True) if path_of(line) not in gone]
    return "".join(old.get(path_of(line), line) if _is_bare(line) else line for line in kept)


def path_of(line: str) -> str:
    """Return the path that a line of RECORD is about."""
    return next(csv.reader([line]), [""])[0]


def _is_bare(line: str) -> bool:
    return next(csv.reader([line]), [])[1:] == ["", ""]


def _row(path: str) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([path, "", ""])
    return out.getvalue()
