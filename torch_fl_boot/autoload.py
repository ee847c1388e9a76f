"""The wheel's `torch.backends` entry point: torch calls it at the end of its import, so `import torch` suffices.

Torch itself obeys TORCH_DEVICE_BACKEND_AUTOLOAD=0, and fails its import when an entry point raises.
"""

from __future__ import annotations

from importlib import import_module

from torch_fl_boot.notice import warn


def load() -> None:
    """Load the plugin into the torch that is being imported, or say in one line why not."""
    try:
        # Imported here: a damaged installation must not take torch away either.
        import_module("torch_fl_boot.attach").attach()
    except Exception as err:  # noqa: BLE001 - whatever it is, torch would fail its import with it
        warn(err)
