"""The hook's part of `import torch`: the bundle is loaded when torch is executed, not when it is merely looked up.

`importlib.util.find_spec("torch")` and its like get the very spec they would get without us, and nothing is mapped. The
one difference is an attribute of that spec's own loader object, `exec_module`, which removes itself when it is called:
afterwards nothing about torch tells of the hook, and `inspect`, `importlib.resources` and `reload` see the real loader.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from functools import partial
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from torch_fl_boot.hook import TorchFinder
    from torch_fl_boot.start import Started

HOOK_VARIABLE = "FLAGOS_HOOK"
OFF = "0"

# Threads that are looking: another hook may ask all finders again, us included.
_looking: set[int] = set()


def find_torch(
    hook: TorchFinder, path: Sequence[str] | None = None, target: ModuleType | None = None
) -> ModuleSpec | None:
    """Return what the finders after `hook` know of torch, with the execution of the module led past us."""
    thread = get_ident()
    if thread in _looking:
        return None
    _looking.add(thread)
    try:
        spec = _ask_others(hook, path, target)
    finally:
        _looking.discard(thread)
    # Loaders of files are made anew at each search; others may be shared with other modules, or be a class.
    if spec is not None and isinstance(spec.loader, (SourceFileLoader, SourcelessFileLoader)):
        vars(spec.loader)["exec_module"] = partial(_execute, spec.loader)
    return spec


def _ask_others(hook: TorchFinder, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
    finders = list(sys.meta_path)
    place = finders.index(hook) + 1 if hook in finders else 0
    for finder in finders[place:]:
        find_spec = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find_spec("torch", path, target) if find_spec else None
        if spec is not None:
            return spec
    return None


def _execute(loader: SourceFileLoader | SourcelessFileLoader, module: ModuleType) -> None:
    """Load the bundle, execute torch as ever, and prove that its libraries have one origin."""
    vars(loader).pop("exec_module", None)
    started = _load_bundle(module)
    loader.exec_module(module)
    if started is not None:
        from torch_fl_boot.start import finish  # noqa: PLC0415 - costs nothing where the hook is off

        finish(started, os.environ)


def _load_bundle(module: ModuleType) -> Started | None:
    """Return how the process starts; None where torch is to run on its own libraries.

    Raises:
        LeftoverError: a refused preload could not be undone, so torch would run on a mixture.
    """
    if os.environ.get(HOOK_VARIABLE) == OFF:
        return None
    try:
        from torch_fl_boot.start import is_plain, start_for_torch  # noqa: PLC0415 - as above
    except ModuleNotFoundError:  # uninstalled since this process started
        return None
    return None if is_plain() else start_for_torch(os.environ, torch_imported="__version__" in vars(module))
