"""The end of `import torch`: the plugin is loaded into it."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from torch_fl_boot.errors import HookBypassedError, ImportOrderError
from torch_fl_boot.hook_import import is_installed, is_off
from torch_fl_boot.start import PLUGIN, refusal


def attach() -> None:
    """Load the plugin, unless the hook or `import torch_fl` has told why not.

    Nothing is said where torch started without the hook, as FLAGOS_HOOK=0 asks for; `import torch_fl` explains it.

    Raises:
        HookBypassedError: the hook is on, and torch started without it.
        Exception: whatever `import torch_fl` raises.
    """
    # There already, or it is what imports torch and goes on by itself afterwards.
    if PLUGIN in sys.modules or refusal() is not None:
        return
    try:
        import_module(PLUGIN)
    except ImportOrderError as err:
        if is_installed() and not is_off(os.environ):
            raise HookBypassedError(err) from err
