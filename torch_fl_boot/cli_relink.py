"""What changes torch/lib by the commands `relink` and `restore`, and at interpreter start. docs/relink.md."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl_boot.errors import DriverMissingError, FlagosImportError, TorchMissingError
from torch_fl_boot.manifest import VENDOR_CORE, read_build_record, read_manifest
from torch_fl_boot.maps import mapped_libraries
from torch_fl_boot.notice import say
from torch_fl_boot.plan import plan_preload
from torch_fl_boot.preflight import check_files, check_stock, check_target
from torch_fl_boot.preload import require_driver
from torch_fl_boot.relink import Action, Outcome, relink, restore
from torch_fl_boot.relink.errors import USE_PRELOAD, RelinkRefusedError
from torch_fl_boot.stock import RELINK_TRACES, base_version, locate_package, stock_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch_fl_boot.manifest import Manifest
    from torch_fl_boot.stock import StockTorch


@dataclass(frozen=True, kw_only=True)
class Changed:
    """What a call did; the fields are those of `torch_fl_boot.relink.Outcome`, `text` is the same for a person."""

    action: str
    lib: Path
    names: tuple[str, ...]
    pending: tuple[int, ...]
    aside: Path | None
    text: str

    def lines(self) -> Iterator[str]:
        """Yield the answer as text."""
        yield self.text


def relink_torch(package: Path, torch: Path | None) -> Changed:
    """Relink `torch`, or the one that `import torch` takes, to the bundle in `package`, after all checks.

    Raises:
        FlagosImportError: wheel, bundle or torch do not fit, or the relink was refused.
    """
    build = read_build_record(package)
    manifest = read_manifest(package, build)
    if manifest is None:
        what = f"the torch_fl in {package} has no bundle to relink to (a plain build)"
        raise RelinkRefusedError(what, hint=f"install a self-contained wheel, or {USE_PRELOAD}")
    check_target(manifest)
    mapped_libraries()  # without /proc nobody can tell which processes are just loading stock torch
    expected = base_version(manifest.torch)
    stock = stock_in(torch.absolute() if torch is not None else locate_package(expected), expected)
    check_stock(stock, manifest)
    check_files(manifest, package / manifest.bundle_dir)
    _check_driver(manifest, package, stock)
    return _changed(relink(manifest, package, stock, notify=say), idle="already relinked")


def _check_driver(manifest: Manifest, package: Path, stock: StockTorch) -> None:
    """Refuse where a relinked torch could not be imported: it needs the driver stack as the vendor's core does."""
    if manifest.core != VENDOR_CORE:
        return
    try:
        require_driver(plan_preload(manifest, package / manifest.bundle_dir, stock, os.environ))
    except DriverMissingError as err:
        what = (
            f"{stock.lib} was left as it is, since a relinked torch cannot be imported without the driver: {err.what}"
        )
        raise RelinkRefusedError(what, hint=f"{err.hint}; or {USE_PRELOAD}") from err


def restore_torch(torch: Path | None) -> Changed:
    """Give `torch`, or the one that `import torch` takes, its own libraries back; no bundle need be there.

    Raises:
        FlagosImportError: there is no torch, or it was refused.
    """
    if torch is None:
        return _changed(restore(locate_package(), notify=say), idle="not relinked")
    package = torch.absolute()
    signs = [package / "version.py", *(package / "lib" / name for name in RELINK_TRACES)]
    if not any(os.path.lexists(sign) for sign in signs):
        raise TorchMissingError(f"{package} holds none, and no backup of one", expected="")
    return _changed(restore(package, notify=say), idle="not relinked")


def heal(torch: str) -> None:
    """Restore a torch whose bundle has been uninstalled; called at interpreter start, so it never raises."""
    try:
        outcome = restore(Path(torch), notify=say)
    except FlagosImportError as err:
        say(f"torch is relinked to a torch_fl that is gone, and could not be restored: {err}")
    else:
        if outcome.action is Action.RESTORED:
            say(f"torch_fl is gone; {describe_outcome(outcome)}")
    # They come from restore.pyz, which may be gone now.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch_fl_boot"]:
        del sys.modules[name]


def describe_outcome(outcome: Outcome) -> str:
    """Return what a call did, in lines for a person."""
    lines = [f"{outcome.lib}: {outcome.action.value}" + (f": {', '.join(outcome.names)}" if outcome.names else "")]
    if outcome.pending:
        pids = ", ".join(map(str, outcome.pending))
        lines.append(f"process {pids} is still loading stock torch; run this again when it is done, to finish")
    if outcome.aside is not None:
        lines.append(f"torch was replaced since the relink: its files stay, the old backup is now {outcome.aside}")
    return "\n".join(lines)


def _changed(outcome: Outcome, *, idle: str) -> Changed:
    """Describe the outcome; `idle` says why there may have been nothing to do."""
    nothing = outcome.action is Action.NOTHING and not outcome.pending and outcome.aside is None
    return Changed(
        action=outcome.action.value,
        lib=outcome.lib,
        names=outcome.names,
        pending=outcome.pending,
        aside=outcome.aside,
        text=f"{outcome.lib}: nothing to do: {idle}" if nothing else describe_outcome(outcome),
    )
