"""Findings of `doctor` and answers of all commands: codes, text, JSON, and the way to stdout."""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING

from torch_fl_boot.notice import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, ClassVar, Protocol

    class DataclassInstance(Protocol):
        """What `dataclasses.asdict` takes."""

        __dataclass_fields__: ClassVar[dict[str, Any]]


SCHEMA = 1


class Severity(str, Enum):
    """An error keeps torch_fl from working, a warning may; a note is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


# Stable: a code is never given to another cause.
CODES: Mapping[str, str] = {
    "R001": "the wheel's own records are missing or cannot be read",
    "R002": "another Python than the wheel was built for",
    "R003": "another machine than the wheel was built for",
    "R004": "no stock torch, or one whose version cannot be read",
    "R005": "another stock torch than the wheel was built for",
    "R006": "FLAGOS_CORE asks for something unknown",
    "R007": "there is no /proc that tells what a process has mapped",
    "R010": "a bundled file is missing, or its size or ELF header differs from the manifest",
    "R011": "the sha256 of a bundled file differs from the manifest",
    "R012": "a file or directory of the wheel cannot be read",
    "R013": "the wheel lies on a file system that is mounted noexec",
    "R020": "a library of the driver stack is found nowhere",
    "R021": "a library that is not the driver's is found nowhere",
    "R022": "a library is found and cannot be loaded",
    "R023": "another copy of a bundled library comes first",
    "R024": "LD_PRELOAD brings a torch library",
    "R025": "LD_LIBRARY_PATH holds a torch library",
    "R030": "symbols that nothing in the process provides",
    "R031": "symbol versions that a library lacks",
    "R040": "the device runtime cannot be opened, or does not answer",
    "R041": "the device runtime sees no device",
    "R050": "the import hook is off, so that plain `import torch` runs on stock torch",
    "R051": "another plugin for PrivateUse1 is installed",
    "R052": "the entry points of an installed distribution cannot be read",
    "R053": "another torch_fl comes first on sys.path",
    "R060": "torch/lib is relinked, but not as this wheel would relink it",
    "R070": "more than one GNU OpenMP runtime would be in the process",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that is not as it should be: what was found and expected, where, and the next step."""

    code: str
    severity: Severity
    where: str
    found: str
    expected: str
    hint: str

    def lines(self) -> Iterator[str]:
        """Yield the finding as text, its facts indented under a line with code and place."""
        yield f"{self.severity.value} {self.code} {self.where}: {CODES[self.code]}"
        for title, text in (("found", self.found), ("expected", self.expected), ("hint", self.hint)):
            first, *more = text.splitlines() or [""]
            yield f"  {title + ':':<9} {first}"
            yield from (f"            {line.strip()}" for line in more)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What a command says with `--json` where it could not do its work: the kind of error, the facts, the next step."""

    error: str
    what: str
    hint: str


INTERRUPTION = Failure(
    error="KeyboardInterrupt",
    what="interrupted",
    hint="run it again; a change of torch/lib that was begun is completed or undone then",
)


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether one of them is an error."""
    return any(finding.severity is Severity.ERROR for finding in findings)


def to_json(command: str, answer: DataclassInstance) -> str:
    """Return a command's answer as one JSON object: the dataclass's fields, `schema` and `command`, keys sorted."""
    content = {"schema": SCHEMA, "command": command, **asdict(answer)}
    return json.dumps(content, indent=2, sort_keys=True, default=_plain)


def write_answer(text: str) -> bool:
    """Write a command's answer to stdout; if that fails, say so on stderr, and return False."""
    try:
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            # Paths need not be text, and not every encoding knows all letters.
            sys.stdout.reconfigure(errors="backslashreplace")
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader had enough
        words = ""
    except (AttributeError, ValueError):  # no stdout, or a closed one
        words = "it is closed"
    except OSError as err:
        words = str(err.strerror or err)
    else:
        return True
    if words:
        say(f"error: the answer could not be written to stdout: {words}\nhint: give the command a stdout to write to")
    _drop_stdout()
    return False


def _drop_stdout() -> None:
    """What Python flushes at exit must not fail again."""
    with suppress(AttributeError, ValueError, OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plain(value: object) -> str:
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
