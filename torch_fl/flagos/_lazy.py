"""Initialisation at first use, and what becomes of it in a forked child."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from torch_fl._C import _init
from torch_fl_boot.start import absent_driver

if TYPE_CHECKING:
    from collections.abc import Callable


class _Runtime:
    """Whether the vendor's runtime is up, and the calls that wait for it."""

    def __init__(self) -> None:
        # Re-entrant: a waiting call may itself ask for initialisation.
        self._lock = threading.RLock()
        self._waiting: list[Callable[[], None]] = []
        self._busy = False
        self.ready = False
        self.bad_fork = False

    def init(self) -> None:
        if self.ready:
            return
        with self._lock:
            if self.ready or self._busy:
                return
            if self.bad_fork:
                raise RuntimeError(
                    "Cannot re-initialize flagos in forked subprocess. To use flagos with multiprocessing, you must "
                    "use the 'spawn' start method"
                )
            if (absent := absent_driver()) is not None:
                raise RuntimeError(f"flagos has no device in this process: {absent}")
            self._busy = True
            try:
                _init()
                while self._waiting:
                    self._waiting.pop(0)()
                self.ready = True
            finally:
                self._busy = False

    def call(self, function: Callable[[], None]) -> None:
        with self._lock:
            if not (self.ready or self._busy):
                self._waiting.append(function)
                return
        function()

    def after_fork(self) -> None:
        self._lock = threading.RLock()
        self._busy = False
        self.bad_fork = self.bad_fork or self.ready
        self.ready = False


_runtime = _Runtime()
os.register_at_fork(after_in_child=_runtime.after_fork)


def init() -> None:
    """Initialise the vendor's runtime now; later calls do nothing.

    Raises:
        RuntimeError: no device answers, or this process was forked from one that had initialised it.
    """
    _runtime.init()


def is_initialized() -> bool:
    """Whether the vendor's runtime is up in this process."""
    return _runtime.ready


def _lazy_init() -> None:
    # The name that PyTorch looks for.
    _runtime.init()


def lazy_call(function: Callable[[], None]) -> None:
    """Run `function` now if the runtime is up, right after its initialisation otherwise."""
    _runtime.call(function)


def _is_in_bad_fork() -> bool:
    return _runtime.bad_fork
