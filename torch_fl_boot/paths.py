"""Questions about files that are answered with no where the system refuses an answer, and names that stay in a folder.

Before Python 3.14 pathlib raises for a folder that may not be entered, or a name that is too long, where `os.path` says
no; a search through folders that others have named must do as the latter.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def is_file(path: Path) -> bool:
    """Whether there is a file, as far as this user can see."""
    try:
        return path.is_file()
    except OSError:
        return False


def exists(path: Path) -> bool:
    """Whether there is anything, links followed, as far as this user can see."""
    try:
        return path.exists()
    except OSError:
        return False


def is_plain_name(text: str) -> bool:
    """Whether it can name an entry of a folder, and nothing outside of it."""
    try:
        data = os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return data not in {b"", b".", b".."} and not {0, ord("/")}.intersection(data)
