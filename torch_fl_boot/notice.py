"""What the runtime says to a program that only imported torch: one line on stderr, and torch goes on."""

from __future__ import annotations

import sys

from torch_fl_boot.errors import FlagosImportError


def warn(error: Exception, *, where: str = "") -> None:
    """Say in one line why this process has no flagos and what to do about it; `where` adds what torch runs on.

    Not by `warnings`: a filter that turns warnings into errors would take torch away from the program.
    """
    if isinstance(error, FlagosImportError):
        text = f"{error.what}; hint: {error.hint}"
    else:
        text = f"{type(error).__name__}: {error}; hint: this is a fault of torch_fl, please report it"
    line = " ".join(text.split())
    if sys.stderr is not None:
        sys.stderr.write(f"torch_fl: warning: torch runs without flagos{where}: {line}\n")
