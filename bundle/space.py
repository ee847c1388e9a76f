"""Asking for disk space before work begins, so that a stage that cannot end is refused in its first second.

What is needed is computed from the inputs wherever they are there to be measured. Asking is no promise: others write to
the same disk. So a bound errs on the low side where the true size is not known, and a disk that fills up meanwhile is
the refusal of `bundle.guard`.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bundle.disk import existing, free_bytes
from bundle.errors import FileAccessError, NoSpaceError

MB = 10**6
SLACK = 64 * MB
"""What a stage may write besides the large files that its need was computed from: object files, bytecode, logs."""

ENVIRONMENT = 880 * MB
"""An environment with stock torch and the tools to compile with, just made: 882 MB for torch 2.13.0, Python 3.11.

It counts until there is one to measure. One to verify in came to 928 MB, bytecode of 40 MB among it."""


@dataclass(frozen=True, kw_only=True)
class Undertaking:
    """A nox session of many stages: what it leaves in build/ and dist/, and what it takes of TMPDIR meanwhile."""

    name: str
    kept: int
    temporary: int


# With torch 2.13.0+cpu on ext4. What is left is the sum of the folders; what is taken meanwhile is the most that `du`
# found in the temporary folder while the demo verifies, and that `df` found besides that while the tests run.
DEMO = Undertaking(name="demo", kept=4800 * MB, temporary=1500 * MB)
TESTS = Undertaking(name="tests", kept=4000 * MB, temporary=3900 * MB)
# What is measured differs a little from one release of torch to the next; a session that would end must not be refused.
_CLEARLY = 0.9


def size_of(folder: Path) -> int:
    """Return the bytes that the files below a folder take on disk; links are not followed, hard links count once."""
    seen: dict[tuple[int, int], int] = {}
    for root, _, names in os.walk(folder):
        for name in names:
            # Others may be at work there.
            with suppress(FileNotFoundError):
                found = Path(root, name).lstat()
                seen[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(seen.values())


def require(who: str, needed: int, where: Path, *, temporary: bool = False, clearly: float = 1.0) -> None:
    """Ask for `needed` bytes on the file system of a folder, which may still be to make.

    `temporary` says that TMPDIR chooses the folder, for the hint. Of an estimate only the part `clearly` must be free.

    Raises:
        NoSpaceError: less is free.
    """
    free = free_bytes(where)
    if free is not None and free < needed * clearly:
        other = "name a folder on another disk with TMPDIR" if temporary else "work in a checkout on another disk"
        raise NoSpaceError(who, needed=needed, free=free, where=where, hint=f"make room there, or {other}")


def require_temporary(who: str, needed: int) -> None:
    """Ask as `require` does, in the folder for temporary files."""
    require(who, needed, _temporary(), temporary=True)


def _temporary() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except OSError as err:
        raise FileAccessError(err) from err


def outlook(session: Undertaking, repository: Path) -> str:
    """Say in one line what a session needs and what is free.

    What is in build/ and dist/ already is taken off, whatever it is from. Most goes to build/, which may lie, or be
    linked to, elsewhere than the repository: it is asked for there.

    Raises:
        NoSpaceError: clearly less is free than it needs.
        FileAccessError: no folder takes temporary files, as on a disk that is full already.
    """
    there = sum(size_of(repository / name) for name in ("build", "dist"))
    kept, temporary = max(0, session.kept - there), _temporary()
    build = existing(repository / "build")
    needs = {build: kept, temporary: session.temporary}
    if build.stat().st_dev == temporary.stat().st_dev:
        needs = {build: kept + session.temporary}
    for where, needed in needs.items():
        require(f"session {session.name}", needed, where, temporary=where == temporary, clearly=_CLEARLY)
    words = f"{session.name} writes about {_gb(kept)} to build/ and dist/ ({_gb(there)} are there) and up to "
    words += f"{_gb(session.temporary)} to {temporary} while it runs"
    return f"{words}; free: " + ", ".join(f"{_gb(free_bytes(where) or 0)} in {where}" for where in needs)


def _gb(size: int) -> str:
    return f"{size / 10**9:.1f} GB"
