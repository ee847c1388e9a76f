"""RECORD, the list of a wheel's files, as data: parse, validate, render. Nothing here touches a file.

Source: the binary distribution format, packaging.python.org/specifications/binary-distribution-format/.
"""

from __future__ import annotations

import base64
import binascii
import csv
import io
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

RECORD = "RECORD"
SIGNATURES = ("RECORD.jws", "RECORD.p7s")
"""Signatures cover RECORD, so RECORD cannot list them."""

_FIELDS = 3
_ALGORITHM = "sha256"


@dataclass(frozen=True, kw_only=True)
class Digest:
    """A file's sha256 in hexadecimal, and its size in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of RECORD; `digest` is None where hash and size are blank."""

    path: str
    digest: Digest | None


class Kind(str, Enum):
    """What can be wrong with a RECORD."""

    SYNTAX = "syntax"
    UNLISTED = "unlisted"
    ABSENT = "absent"
    DIFFERS = "differs"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing wrong, and the path (or line) it is about."""

    kind: Kind
    path: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Record:
    """A parsed RECORD: the rows that could be read, and a problem for each line that could not."""

    rows: tuple[Row, ...]
    problems: tuple[Problem, ...]


def parse(text: str) -> Record:
    """Read RECORD's text; a bad line becomes a problem and does not hide the lines after it."""
    rows: list[Row] = []
    problems: list[Problem] = []
    seen: set[str] = set()
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        for fields in reader:
            parsed = _row(fields, where=f"line {reader.line_num}", seen=seen)
            if isinstance(parsed, Problem):
                problems.append(parsed)
            else:
                rows.append(parsed)
    except csv.Error as err:
        problems.append(Problem(kind=Kind.SYNTAX, path=f"line {reader.line_num}", detail=f"not CSV: {err}"))
    return Record(rows=tuple(rows), problems=tuple(problems))


def _row(fields: list[str], *, where: str, seen: set[str]) -> Row | Problem:
    if len(fields) != _FIELDS:
        return Problem(kind=Kind.SYNTAX, path=where, detail=f"{len(fields)} fields, expected {_FIELDS}")
    path, digest, size = fields
    if path in seen:
        return Problem(kind=Kind.SYNTAX, path=where, detail=f"{path} is listed twice")
    seen.add(path)
    if not digest and not size:
        return Row(path=path, digest=None)
    try:
        return Row(path=path, digest=_digest(digest, size))
    except ValueError as err:
        return Problem(kind=Kind.SYNTAX, path=where, detail=f"{path}: {err}")


def _digest(text: str, size: str) -> Digest:
    algorithm, _, encoded = text.partition("=")
    if algorithm != _ALGORITHM:
        raise ValueError(f"hash {text!r}, expected {_ALGORITHM}=...")
    if not (size.isascii() and size.isdigit()):
        raise ValueError(f"size {size!r} is not a number of bytes")
    try:
        value = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except binascii.Error as err:
        raise ValueError(f"hash {text!r} is not base64") from err
    return Digest(sha256=value.hex(), size=int(size))


def validate(record: Record, actual: Mapping[str, Digest], *, own: str) -> tuple[Problem, ...]:
    """Compare a RECORD with the files of its wheel, `own` being the path of RECORD itself.

    Returns every problem, those of parsing first; an empty tuple means that RECORD is exact.
    """
    return (*record.problems, *_compare(record, actual, own=own))


def _compare(record: Record, actual: Mapping[str, Digest], *, own: str) -> Iterator[Problem]:
    listed = {row.path: row.digest for row in record.rows}
    blank = {own, *_signatures(own)}
    for path, digest in sorted(listed.items()):
        if path in blank:
            if digest is not None:
                yield Problem(kind=Kind.DIFFERS, path=path, detail="has a hash, but RECORD cannot cover it")
        elif path not in actual:
            yield Problem(kind=Kind.ABSENT, path=path, detail="is listed, but the wheel lacks it")
        elif digest != actual[path]:
            yield Problem(kind=Kind.DIFFERS, path=path, detail=_difference(digest, actual[path]))
    if own not in listed:
        yield Problem(kind=Kind.UNLISTED, path=own, detail="RECORD does not list itself")
    for path in sorted(actual.keys() - listed.keys() - blank):
        yield Problem(kind=Kind.UNLISTED, path=path, detail="is in the wheel, but not listed")


def _difference(listed: Digest | None, found: Digest) -> str:
    if listed is None:
        return "is listed without hash and size"
    if listed.size != found.size:
        return f"{found.size} bytes, RECORD says {listed.size}"
    return f"sha256 {found.sha256}, RECORD says {listed.sha256}"


def render(files: Mapping[str, Digest], *, own: str) -> str:
    """Return RECORD's text: one row per file sorted by path, then RECORD's own with hash and size blank."""
    excluded = {own, *_signatures(own)}
    rows = [Row(path=path, digest=digest) for path, digest in sorted(files.items()) if path not in excluded]
    return _rendered([*rows, Row(path=own, digest=None)])


def _rendered(rows: Iterable[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        digest = row.digest
        writer.writerow([row.path, _encoded(digest.sha256), digest.size] if digest else [row.path, "", ""])
    return text.getvalue()


def _encoded(sha256: str) -> str:
    return f"{_ALGORITHM}=" + base64.urlsafe_b64encode(bytes.fromhex(sha256)).decode("ascii").rstrip("=")


def _signatures(own: str) -> tuple[str, ...]:
    folder = own.removesuffix(RECORD)
    return tuple(folder + name for name in SIGNATURES)
