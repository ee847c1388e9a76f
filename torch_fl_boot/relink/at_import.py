"""What `import torch_fl` does on disk before it opens the bundle: the relink asked for, or the end of another's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_fl_boot.notice import say
from torch_fl_boot.plan import RELINK
from torch_fl_boot.relink import RelinkError, relink, settle

if TYPE_CHECKING:
    from pathlib import Path

    from torch_fl_boot.manifest import Manifest
    from torch_fl_boot.stock import StockTorch


def change_disk(strategy: str, manifest: Manifest, package: Path, stock: StockTorch) -> None:
    """Relink if that is the strategy; else complete or undo what a killed process left, if there is such.

    The latter only warns when it cannot be done (a read-only tree, say), since torch works as it is.

    Raises:
        RelinkError: asked to relink, and it cannot be done.
    """
    if strategy == RELINK:
        relink(manifest, package, stock, notify=say)
        return
    try:
        settle(stock.package, notify=say)
    except RelinkError as err:
        say(f"torch/lib was left as it is: {err}")
