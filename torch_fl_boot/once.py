"""Remembers how an attempt ended: a process gets one.

A second `import torch_fl` after a failed one must not open libraries again, and after a preload that could not be
undone torch must not be imported: it would run on a mixture.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock, get_ident
from typing import TYPE_CHECKING, Generic, TypeVar

from torch_fl_boot.errors import LeftoverError, MixedCoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

T = TypeVar("T")


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


class Once(Generic[T]):
    """One attempt at something, by the first thread that asks; the others wait and get the same.

    Kept in a module that outlives a failed import: Python drops `torch_fl` from sys.modules then, but not its parts.
    """

    def __init__(self) -> None:
        # Re-entrant: what is attempted may import torch, whose hook asks again.
        self._lock = RLock()
        self._thread: int | None = None
        os.register_at_fork(after_in_child=self._after_fork)
        self._results: list[T] = []
        self._error: Exception | None = None

    @property
    def result(self) -> T | None:
        """What the attempt gave, if it was made and succeeded."""
        return self._results[0] if self._results else None

    @property
    def error(self) -> Exception | None:
        """What the attempt failed with, if it was made and failed."""
        return self._error

    def __call__(self, action: Callable[[], T]) -> T:
        """Return what `action` returns; if it failed before, raise that error again without a second try."""
        with self._lock:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if not self._results:
                self._thread = get_ident()
                try:
                    self._results.append(action())
                except Exception as err:
                    self._error = err
                    if isinstance(err, (LeftoverError, MixedCoreError)):
                        sys.meta_path.insert(0, RefuseTorch(err))
                    raise
                finally:
                    self._thread = None
            return self._results[0]

    def _after_fork(self) -> None:
        """In a forked child: a thread that was at it is not there, and nobody else would release its lock."""
        if self._thread != get_ident():
            self._lock, self._thread = RLock(), None
