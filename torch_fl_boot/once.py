"""Remembers how the import ended: a process gets one attempt.

A second `import torch_fl` after a failed one must not open libraries again, and after a preload that could not be
undone torch must not be imported: it would run on a mixture.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

from torch_fl_boot.errors import LeftoverError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

T = TypeVar("T")

# Outlives the package: Python drops `torch_fl` from sys.modules when its import fails, but keeps this module.
_failures: list[Exception] = []


class RefuseTorch:
    """A finder for sys.meta_path that answers `import torch` with the error that made it unsafe."""

    def __init__(self, error: ImportError) -> None:
        self.error = error

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise for torch; know nothing of other modules."""
        del path, target
        if fullname == "torch":
            raise self.error.with_traceback(None)
        return None


def once(start: Callable[[], T]) -> T:
    """Return what `start` returns; if it failed before, raise that error again without a second try."""
    if _failures:
        raise _failures[0].with_traceback(None)
    try:
        return start()
    except Exception as err:
        _failures.append(err)
        if isinstance(err, LeftoverError):
            sys.meta_path.insert(0, RefuseTorch(err))
        raise
