"""The commands `relink` and `restore`: what they did to torch/lib, as text and JSON. docs/relink.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_fl_boot.relink import restore
from torch_fl_boot.relink.__main__ import describe_outcome, relink_installed, say
from torch_fl_boot.stock import StockTorch, locate_stock, read_version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch_fl_boot.relink import Outcome


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
    """Relink `torch`, or the one that `import torch` takes, to the bundle in `package`.

    Raises:
        FlagosImportError: wheel, bundle or torch do not fit, or the relink was refused.
    """
    named = None if torch is None else StockTorch(package=torch.absolute(), version=read_version(torch) or "")
    return _changed(relink_installed(package, named))


def restore_torch(torch: Path | None) -> Changed:
    """Give `torch`, or the one that `import torch` takes, its own libraries back; no bundle need be there.

    Raises:
        FlagosImportError: there is no torch, or it was refused.
    """
    package = torch.absolute() if torch is not None else locate_stock(expected="").package
    return _changed(restore(package, notify=say))


def _changed(outcome: Outcome) -> Changed:
    return Changed(
        action=outcome.action.value,
        lib=outcome.lib,
        names=outcome.names,
        pending=outcome.pending,
        aside=outcome.aside,
        text=describe_outcome(outcome),
    )
