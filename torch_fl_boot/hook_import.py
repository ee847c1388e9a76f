"""The hook's part of `import torch`, once torch is executed and not merely looked up."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from torch_fl_boot.notice import warn_of_driver
from torch_fl_boot.start import PLUGIN, absent_driver, finish, is_plain, start_for_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from torch_fl_boot.start import Started

HOOK_VARIABLE = "FLAGOS_HOOK"
OFF = "0"
_FINDERS_MODULE = "torch_fl_boot.hook"


def is_installed() -> bool:
    """Whether this interpreter has processed the wheel's .pth file."""
    return any(type(finder).__module__ == _FINDERS_MODULE for finder in sys.meta_path)


def is_off(environ: Mapping[str, str]) -> bool:
    """Whether the user has turned the hook off."""
    return environ.get(HOOK_VARIABLE) == OFF


def execute(exec_module: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Load the bundle, execute torch by its loader's `exec_module`, and prove that its libraries have one origin.

    Raises:
        LeftoverError: a refused preload could not be undone, so torch would run on a mixture.
        MixedCoreError: torch runs on a mixture.
    """
    started = _load_bundle(module)
    try:
        exec_module(module)
    except (ImportError, OSError):  # OSError: torch opens some of its libraries by ctypes
        _explain()
        raise
    if started is not None:
        finish(started, os.environ)


def _explain() -> None:
    """Say why torch did not start if it is relinked and lacks the driver; `import torch_fl` says so by itself."""
    absent = absent_driver()
    if absent is not None and absent.relinked and PLUGIN not in sys.modules:
        warn_of_driver(absent, "torch cannot be imported, since it is relinked")


def _load_bundle(module: ModuleType) -> Started | None:
    """Return how the process starts; None where torch is to run on its own libraries."""
    if is_off(os.environ) or is_plain():
        return None
    return start_for_torch(os.environ, torch_imported="__version__" in vars(module))
