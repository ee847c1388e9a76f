"""`python -m torch_fl_boot.relink relink|restore|status`, also where torch_fl does not start; and restore.pyz."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl_boot.errors import FlagosImportError
from torch_fl_boot.manifest import read_build_record, read_manifest
from torch_fl_boot.preflight import check_files, check_stock, check_target
from torch_fl_boot.relink import Action, Outcome, relink, restore, state
from torch_fl_boot.relink.errors import USE_PRELOAD, RelinkRefusedError
from torch_fl_boot.stock import StockTorch, base_version, locate_stock, read_version

if TYPE_CHECKING:
    from collections.abc import Sequence

REFUSED = 1


def say(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"torch_fl: {text}\n")


def relink_installed(package: Path, stock: StockTorch | None = None) -> Outcome:
    """Relink the torch that `import torch` takes to the bundle of the torch_fl in `package`, after all checks.

    Raises:
        FlagosImportError: wheel, bundle or torch do not fit, or the relink was refused.
    """
    build = read_build_record(package)
    manifest = read_manifest(package, build)
    if manifest is None:
        what = f"the torch_fl in {package} has no bundle to relink to (a plain build)"
        raise RelinkRefusedError(what, hint=f"install a self-contained wheel, or {USE_PRELOAD}")
    check_target(manifest)
    stock = stock or locate_stock(expected=base_version(manifest.torch))
    check_stock(stock, manifest)
    check_files(manifest, package / manifest.bundle_dir)
    return relink(manifest, package, stock, notify=say)


def describe_outcome(outcome: Outcome) -> str:
    """Return what a call did, in lines for a person."""
    lines = [f"{outcome.lib}: {outcome.action.value}" + (f": {', '.join(outcome.names)}" if outcome.names else "")]
    if outcome.pending:
        pids = ", ".join(map(str, outcome.pending))
        lines.append(f"process {pids} is still loading stock torch; run this again when it is done, to finish")
    if outcome.aside is not None:
        lines.append(f"torch was replaced since the relink: its files stay, the old backup is now {outcome.aside}")
    return "\n".join(lines)


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 if it did what was asked or there was nothing to do, 1 if refused, 2 for a wrong call."""
    parser = argparse.ArgumentParser(prog="torch_fl_boot.relink", description=__doc__)
    parser.add_argument("command", choices=("relink", "restore", "status"))
    parser.add_argument("--torch", type=Path, help="the torch package (default: the one that `import torch` takes)")
    arguments = parser.parse_args(argv)
    try:
        sys.stdout.write(_run(arguments.command, arguments.torch) + "\n")
    except FlagosImportError as err:
        say(f"error: {err}")
        return REFUSED
    return 0


def _run(command: str, torch: Path | None) -> str:
    if command == "relink":
        named = None if torch is None else StockTorch(package=torch.absolute(), version=read_version(torch) or "")
        package = Path(__file__).absolute().parents[2] / "torch_fl"
        return describe_outcome(relink_installed(package, named))
    torch = (torch or locate_stock(expected="").package).absolute()
    if command == "restore":
        return describe_outcome(restore(torch, notify=say))
    found = state(torch)
    return "\n".join([f"{torch / 'lib'}: {found.condition.value}", *found.problems])


if __name__ == "__main__":
    sys.exit(main())
