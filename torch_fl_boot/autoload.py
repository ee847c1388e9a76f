"""The wheel's `torch.backends` entry point: torch calls it at the end of its import, so `import torch` suffices.

Torch itself obeys TORCH_DEVICE_BACKEND_AUTOLOAD=0, and fails its import when an entry point raises.
"""

from __future__ import annotations

import sys
from importlib import import_module

from torch_fl_boot.errors import FlagosImportError, ImportOrderError
from torch_fl_boot.notice import warn
from torch_fl_boot.start import PLUGIN, refusal


def load() -> None:
    """Load the plugin into the torch that is being imported, or say in one line why not.

    Nothing is said where the hook or `import torch_fl` has said it, nor where torch started without the hook: that is
    what FLAGOS_HOOK=0 asks for, and `import torch_fl` explains it.
    """
    # There already, or it is what imports torch and goes on by itself afterwards.
    if PLUGIN in sys.modules or refusal() is not None:
        return
    try:
        import_module(PLUGIN)
    except ImportOrderError:
        return
    except FlagosImportError as err:
        warn(err)
