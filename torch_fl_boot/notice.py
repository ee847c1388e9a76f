"""What the runtime says on stderr beside a program's own words: one line, and the program goes on.

Imports nothing of this package: it is what is left to explain that the package is damaged.
"""

from __future__ import annotations

import sys
from contextlib import suppress

# The hook and the entry point may both run into the same damage.
_SAID: set[str] = set()


def say(text: str) -> None:
    """Write a line to stderr, if there is one that takes it: what is said must not fail what is done."""
    # None without a descriptor; closed, on a full disk, or whatever else the program has put there.
    with suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"torch_fl: {text}\n")


def warn(error: Exception, *, where: str = "") -> None:
    """Say in one line why this process has no flagos and what to do about it; `where` adds what torch runs on.

    Not by `warnings`: a filter that turns warnings into errors would take torch away from the program.
    """
    line = _one_line(error)
    if line not in _SAID:
        _SAID.add(line)
        say(f"warning: torch runs without flagos{where}: {line}")


def warn_of_driver(error: Exception, what: str) -> None:
    """Say in one line `what` has become of torch/lib for want of the driver that `error` names."""
    say(f"warning: {what}: {_one_line(error)}")


def _one_line(error: Exception) -> str:
    what, hint = getattr(error, "what", ""), getattr(error, "hint", "")
    if not (what and hint):  # no FlagosImportError
        what = f"{type(error).__name__}: {error}"
        damaged = isinstance(error, (ImportError, OSError))
        hint = "reinstall torch_fl" if damaged else "this is a fault of torch_fl, please report it"
    return " ".join(f"{what}; hint: {hint}".split())
