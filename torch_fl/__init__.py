"""The PyTorch device `flagos`, on whatever accelerator this wheel was built for.

`import torch_fl` comes before the first `import torch`: it loads the bundled vendor libraries, and stock torch then
runs on them. docs/runtime.md tells the order, the errors and the variables.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl_boot.cli_start import started_as_command
from torch_fl_boot.errors import FlagosImportError, PluginImportError, TorchImportError
from torch_fl_boot.info import BundleInfo, describe, version_of
from torch_fl_boot.manifest import VENDOR_CORE, read_build_record, read_manifest
from torch_fl_boot.maps import mapped_libraries
from torch_fl_boot.once import once
from torch_fl_boot.origin import check_origins
from torch_fl_boot.plan import choose_strategy, plan_preload
from torch_fl_boot.preflight import ProcessState, check_files, check_process, check_stock, check_target
from torch_fl_boot.preload import Preloaded, already_loaded, preload
from torch_fl_boot.relink.at_import import change_disk
from torch_fl_boot.stock import locate_stock
from torch_fl_boot.version import restore_version_fields

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from types import ModuleType

    from torch_fl_boot.manifest import Manifest
    from torch_fl_boot.stock import StockTorch

# Not resolved: where an installer links files from a cache, $ORIGIN must stay the directory in site-packages.
_PACKAGE = Path(__file__).absolute().parent


def _start(environ: MutableMapping[str, str]) -> tuple[BundleInfo, str]:
    build = read_build_record(_PACKAGE)
    manifest = read_manifest(_PACKAGE, build)
    record = manifest or build
    check_target(record)
    stock = locate_stock(expected=record.torch)
    check_stock(stock, record)
    strategy = choose_strategy(environ, manifest)
    preloaded = Preloaded(loaded=())
    if manifest is None:
        _import_torch(build.backend, core="its own core")
    else:
        preloaded = _run_on_bundle(manifest, stock, environ, strategy)
    try:
        device_module = import_module("torch_fl.flagos")
    except FlagosImportError:
        raise
    except ImportError as err:
        raise PluginImportError(build.backend, str(err)) from err
    device_module._register()  # noqa: SLF001 - its door for this module alone
    return describe(build, manifest, strategy, preloaded), version_of(build, manifest)


def _run_on_bundle(
    manifest: Manifest, stock: StockTorch, environ: MutableMapping[str, str], strategy: str
) -> Preloaded:
    bundle = _PACKAGE / manifest.bundle_dir
    check_files(manifest, bundle)
    plan = plan_preload(manifest, bundle, stock, environ)
    state = check_process(plan, manifest.core, mapped_libraries(), torch_imported="torch" in sys.modules)
    change_disk(strategy, manifest, _PACKAGE, stock)
    preloaded = preload(plan) if state is ProcessState.FRESH else already_loaded(plan)
    torch = _import_torch(manifest.backend, core="the bundle's core")
    check_origins(plan.origins, mapped_libraries())
    if manifest.core == VENDOR_CORE:
        restore_version_fields(torch.version, manifest.version_fields, environ)
    environ.setdefault("GEMS_VENDOR", manifest.gems_vendor)
    return preloaded


def _import_torch(backend: str, *, core: str) -> ModuleType:
    try:
        return import_module("torch")
    except (ImportError, OSError) as err:  # OSError: torch opens some of its libraries by ctypes
        raise TorchImportError(backend, str(err), core=core) from err


def bundle() -> BundleInfo:
    """Return what this process runs on: backend, core, files, and what was left out for want of a driver."""
    return _INFO


# `python -m torch_fl doctor` passes here on its way to __main__, and must work where torch cannot be imported.
if not started_as_command(sys.argv, sys.orig_argv, __name__):
    _INFO, __version__ = once(lambda: _start(os.environ))

__all__ = ["BundleInfo", "FlagosImportError", "__version__", "bundle", "mapped_libraries"]
