"""What a bundle plan depends on: `bundle.gather` reads it from disk, `bundle.plan` decides on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bundle.backends import CoreSource, When

if TYPE_CHECKING:
    from pathlib import Path

    from bundle.backends import Backend, Role
    from bundle.elf import ElfInfo, Symbols
    from bundle.sdk import Sdk
    from bundle.vendor import VendorTorch

VERSION_COPY = "vendor_version.py"
"""Name of the vendor's version.py in the bundle."""

STOCK_SERVES = "stock's is used"
"""`Missing.optional` of a library for which stock torch's copy serves."""

BUILDS_WITHOUT = "some builds of the vendor do without"
"""`Missing.optional` of a library that not every build of the vendor has."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file that may be bundled, under its future name; `info` and `symbols` are None for files that are not ELF."""

    name: str
    path: Path
    role: Role
    size: int
    when: When = When.ALWAYS
    info: ElfInfo | None = None
    symbols: Symbols | None = None


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A file that the backend lists and that is not there; `optional` says why the bundle can do without, "" if not."""

    name: str
    where: Path
    optional: str = ""


@dataclass(frozen=True, kw_only=True)
class StockFacts:
    """Stock torch, which the bundle will be installed beside; `names` are the files of its `torch/lib`."""

    version: str
    machine: str
    names: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class BundleInputs:
    """All that a plan depends on.

    `driver_names` are the files in the SDK's driver directories; `notes` are warnings for the user.
    """

    backend: Backend
    core: CoreSource
    vendor: VendorTorch
    sdk: Sdk
    stock: StockFacts
    sources: tuple[Source, ...]
    missing: tuple[Missing, ...]
    driver_names: frozenset[str]
    notes: tuple[str, ...] = ()

    @property
    def from_stock(self) -> frozenset[str]:
        """Return what stock torch serves to the bundle: its core if that is what runs, else what the vendor lacks."""
        if self.core is CoreSource.STOCK:
            return self.stock.names
        return self.stock.names & {missing.name for missing in self.missing if missing.optional == STOCK_SERVES}
