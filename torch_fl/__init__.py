"""The PyTorch device `flagos`, on whatever accelerator this wheel was built for.

`import torch` suffices: the wheel's hook puts the bundled vendor libraries in front of stock torch, and torch's own
plugin mechanism imports this package. docs/runtime.md tells the order, the errors and the variables.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from torch_fl_boot.cli_start import started_as_command
from torch_fl_boot.errors import FlagosImportError, PluginImportError, TorchImportError
from torch_fl_boot.info import BundleInfo, describe, version_of
from torch_fl_boot.maps import mapped_libraries
from torch_fl_boot.start import COMPLETED, Started, finish, package_folder, start


def _start() -> Started:
    started = start(package_folder(__path__), os.environ)
    _import_torch(started)
    finish(started, os.environ)
    try:
        device_module = import_module("torch_fl.flagos")
    except FlagosImportError:
        raise
    except (ImportError, OSError) as err:
        raise PluginImportError(started.build.backend, str(err)) from err
    device_module._register()  # noqa: SLF001 - its door for this module alone
    return started


def _import_torch(started: Started) -> None:
    try:
        import_module("torch")
    except FlagosImportError:  # the hook's, which looked before we could
        raise
    except (ImportError, OSError) as err:  # OSError: torch opens some of its libraries by ctypes
        core = "its own core" if started.plan is None else "the bundle's core"
        raise TorchImportError(started.build.backend, str(err), core=core, absent=started.absent) from err


def bundle() -> BundleInfo:
    """Return what this process runs on: backend, core, files, and what was left out for want of a driver."""
    return _INFO


# `python -m torch_fl doctor` passes here on its way to __main__, and must work where torch cannot be imported.
if not started_as_command(sys.argv, sys.orig_argv, __name__):
    _STARTED = COMPLETED(_start)
    _INFO, __version__ = describe(_STARTED), version_of(_STARTED.build, _STARTED.manifest)

__all__ = ["BundleInfo", "FlagosImportError", "__version__", "bundle", "mapped_libraries"]
