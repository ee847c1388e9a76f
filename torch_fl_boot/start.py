"""How a process gets on the bundle: one transaction, used by `import torch_fl` and by the hook of `import torch`.

`start` comes before torch's libraries are loaded, `finish` after; each happens once in a process, and both remember how
it ended.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl_boot.errors import DriverAbsentError, DriverMissingError, LeftoverError, MissingIdentityError
from torch_fl_boot.manifest import (
    BUILD_FILE,
    BUNDLE_FILE,
    VENDOR_CORE,
    BuildRecord,
    Manifest,
    read_build_record,
    read_manifest,
)
from torch_fl_boot.maps import mapped_libraries
from torch_fl_boot.notice import warn, warn_of_driver
from torch_fl_boot.once import Once
from torch_fl_boot.origin import check_origins
from torch_fl_boot.paths import is_file
from torch_fl_boot.plan import RELINK, PreloadPlan, choose_strategy, plan_preload
from torch_fl_boot.preflight import ProcessState, check_files, check_process, check_stock, check_target
from torch_fl_boot.preload import Preloaded, already_loaded, preload, require_driver
from torch_fl_boot.stock import locate_stock
from torch_fl_boot.version import restore_version_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping

PLUGIN = "torch_fl"


@dataclass(frozen=True, kw_only=True)
class Started:
    """How this process runs.

    `plan` is None where torch runs on its own libraries: for a plain build, and on a machine without the driver stack,
    of which `absent` then says what is missing.
    """

    build: BuildRecord
    manifest: Manifest | None = None
    strategy: str
    plan: PreloadPlan | None = None
    preloaded: Preloaded = field(default_factory=lambda: Preloaded(loaded=()))
    absent: DriverAbsentError | None = None


_STARTED: Once[Started] = Once()
_FINISHED: Once[bool] = Once()
# The whole of `import torch_fl`, kept here since Python drops that package from sys.modules when its import fails.
COMPLETED: Once[Started] = Once()


def package_folder(locations: Iterable[str] | None = None) -> Path:
    """Return the folder of the installed plugin without importing it: the one of `locations` that holds its records.

    Not resolved: where an installer links files from a cache, $ORIGIN must stay the directory in site-packages. The
    default of `locations` is the folder beside this package, then wherever Python would look: an editable install has
    its sources in one place and what was compiled in another.
    """
    beside = Path(__file__).absolute().parent.with_name(PLUGIN)
    if locations is None:
        if is_file(beside / BUILD_FILE):
            return beside
        spec = find_spec(PLUGIN)
        locations = (spec.submodule_search_locations if spec is not None else None) or ()
    folders = [Path(location).absolute() for location in locations] or [beside]
    return next((folder for folder in folders if is_file(folder / BUILD_FILE)), folders[0])


def is_plain() -> bool:
    """Whether the wheel has no manifest, so that there is nothing to load before torch."""
    package = package_folder()
    # A folder that this user may not enter shows neither.
    return is_file(package / BUILD_FILE) and not os.path.lexists(package / BUNDLE_FILE)


def torch_is_imported() -> bool:
    """Whether torch has been executed; a module that the hook was just called for has not."""
    return hasattr(sys.modules.get("torch"), "__version__")


def start(package: Path, environ: Mapping[str, str]) -> Started:
    """Load the bundle for `import torch_fl`, or say how this process started already.

    Raises:
        FlagosImportError: nothing of the bundle is loaded, now or at any later attempt.
        MissingIdentityError: also where the hook has loaded the bundle of a wheel that a source tree comes before.
    """
    started = _STARTED(lambda: _attempt(package, environ, torch_imported=torch_is_imported(), needs_driver=False))
    if not os.path.lexists(package / BUILD_FILE):
        raise MissingIdentityError(package / BUILD_FILE)
    return started


def start_for_torch(environ: Mapping[str, str], *, torch_imported: bool) -> Started | None:
    """Load the bundle for `import torch`; None, with a line on stderr, where torch must run on its own libraries.

    Unlike `start` it leaves torch as it is on a machine without the vendor's driver. It says nothing of a failure that
    `import torch_fl` has reported before.

    Raises:
        LeftoverError: a refused preload could not be undone, so torch would run on a mixture.
    """
    reported = _STARTED.error is not None
    try:
        return _STARTED(lambda: _attempt(package_folder(), environ, torch_imported=torch_imported, needs_driver=True))
    except LeftoverError:
        raise
    except Exception as err:  # noqa: BLE001 - not even a mistake of ours may take torch away from the user
        if not reported:
            relinked = isinstance(err, DriverMissingError) and err.relinked
            warn(err, where=", if it starts at all: it is relinked" if relinked else ", on its own libraries")
    return None


def refusal() -> Exception | None:
    """Return what `start` or `import torch_fl` failed with, if it did."""
    return _STARTED.error or COMPLETED.error


def absent_driver() -> DriverAbsentError | None:
    """Return which driver libraries are missing where this process runs without the bundle for want of them."""
    started = _STARTED.result
    return started.absent if started is not None else None


def _attempt(package: Path, environ: Mapping[str, str], *, torch_imported: bool, needs_driver: bool) -> Started:
    build = read_build_record(package)
    manifest = read_manifest(package, build)
    record = manifest or build
    check_target(record)
    stock = locate_stock(expected=record.torch)
    check_stock(stock, record)
    strategy = choose_strategy(environ, manifest)
    if manifest is None:
        return Started(build=build, strategy=strategy)
    bundle = package / manifest.bundle_dir
    check_files(manifest, bundle)
    plan = plan_preload(manifest, bundle, stock, environ)
    state = check_process(plan, manifest.core, mapped_libraries(), torch_imported=torch_imported)
    try:
        if strategy == RELINK:
            # Where the bundle cannot run, a torch that leads to it could not be imported at all.
            require_driver(plan, needs_driver=needs_driver)
        if strategy == RELINK or stock.is_relinked:
            from torch_fl_boot.relink.at_import import change_disk  # noqa: PLC0415 - half of the runtime's import time

            change_disk(strategy, manifest, package, stock)
        preloaded = _load(plan, state, needs_driver=needs_driver)
    except DriverAbsentError as err:
        if strategy == RELINK and not stock.is_relinked:
            warn_of_driver(err, f"{stock.lib} was not relinked, as FLAGOS_CORE asks for, and torch runs without flagos")
        return Started(build=build, manifest=manifest, strategy=strategy, absent=err)
    return Started(build=build, manifest=manifest, strategy=strategy, plan=plan, preloaded=preloaded)


def _load(plan: PreloadPlan, state: ProcessState, *, needs_driver: bool) -> Preloaded:
    if state is ProcessState.ON_BUNDLE:
        return already_loaded(plan)
    present = already_loaded(plan).loaded if state is ProcessState.CORE_ON_BUNDLE else ()
    return preload(plan, needs_driver=needs_driver, present=present)


def finish(started: Started, environ: MutableMapping[str, str]) -> None:
    """After torch was imported: prove that its libraries have one origin, and say in torch.version whose they are.

    Raises:
        MixedCoreError: torch runs on a mixture; `import torch` is answered with this error from now on.
    """
    plan, manifest = started.plan, started.manifest
    if plan is not None and manifest is not None:
        _FINISHED(lambda: _finish(plan, manifest, environ))


def _finish(plan: PreloadPlan, manifest: Manifest, environ: MutableMapping[str, str]) -> bool:
    check_origins(plan.origins, mapped_libraries())
    if manifest.core == VENDOR_CORE:
        restore_version_fields(sys.modules["torch"].version, manifest.version_fields, environ)
    environ.setdefault("GEMS_VENDOR", manifest.gems_vendor)
    return True
