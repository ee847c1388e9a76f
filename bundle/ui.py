"""What the tool says: steps, notices and errors to stderr; results to stdout. The only module that prints."""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PROGRESS_SECONDS = 30
_ERROR, _HINT = "bundle: error: ", "bundle: hint: "
_COLOURS = re.compile(r"\x1b\[[0-9;]*[mK]")


def wants_colour(stream: IO[str], environ: Mapping[str, str]) -> bool:
    """Colour on a terminal only; NO_COLOR and FORCE_COLOR are obeyed, NO_COLOR first."""
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or stream.isatty()


def read_refusal(output: str) -> tuple[str, str] | None:
    """Return text and hint of the error that `Reporter.error` wrote at the end of some output, if there is one."""
    *before, last = re.split(f"^{_ERROR}", _COLOURS.sub("", output), flags=re.MULTILINE)
    text, found, hint = last.rstrip("\n").rpartition(f"\n{_HINT}")
    return (text, hint) if before and found and "\n" not in hint else None


@dataclass
class Reporter:
    """Progress to `err`, results to `out`; text carries the meaning alone, colour only underlines it."""

    err: IO[str] = field(default_factory=lambda: sys.stderr)
    out: IO[str] = field(default_factory=lambda: sys.stdout)
    verbose: bool = False
    colour: bool | None = None
    _last_progress: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if self.colour is None:
            self.colour = wants_colour(self.err, os.environ)

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text

    def _write(self, text: str) -> None:
        self.err.write(("\r\x1b[K" if self.err.isatty() else "") + text + "\n")
        self.err.flush()

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """One stage of work: a line when it starts, a line with its duration when it ends or fails."""
        self._write(self._paint(f"bundle: {title} ...", "36"))
        start = time.monotonic()
        try:
            yield
        except BaseException:
            self._write(self._paint(f"bundle: {title} failed after {time.monotonic() - start:.1f} s", "31"))
            raise
        self._write(f"bundle: {title} done in {time.monotonic() - start:.1f} s")

    def progress(self, text: str) -> None:
        """Show one passing line: rewritten in place on a terminal, printed under -v, else at most once in 30 s."""
        if self.err.isatty() and not self.verbose:
            self.err.write("\r\x1b[K" + text[:100])
            self.err.flush()
        elif self.verbose or time.monotonic() - self._last_progress > PROGRESS_SECONDS:
            self._last_progress = time.monotonic()
            self._write(f"  {text}")

    def notice(self, text: str) -> None:
        """Something the user may want to know."""
        self._write(f"bundle: {text}")

    def warning(self, text: str) -> None:
        """Something that may be wrong, but does not stop the work."""
        self._write(self._paint(f"bundle: warning: {text}", "33"))

    def error(self, text: str, *, hint: str) -> None:
        """The first cause, and the next step."""
        self._write(self._paint(f"{_ERROR}{text}", "31"))
        self._write(f"{_HINT}{hint}")

    def command(self, argv: Sequence[str]) -> None:
        """Echo a command about to run, when verbose."""
        if self.verbose:
            self._write("+ " + " ".join(argv))

    def result(self, text: str) -> None:
        """A result, to stdout."""
        self.out.write(text + "\n")
        self.out.flush()

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows in aligned columns, to stdout."""
        lines = [list(header), *[list(row) for row in rows]]
        widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
        for index, line in enumerate(lines):
            self.result("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
            if index == 0:
                self.result("  ".join("-" * width for width in widths))
