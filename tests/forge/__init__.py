"""Vendor-shaped torch installations for machines without the vendor's hardware.

`forge` makes one from a stock torch: the vendor's file names, sonames, DT_NEEDED, SDK tree and known faults, with a
device library over host memory behind them (`csrc/`). Skipping a packaging step then fails here as on the hardware.
"""

from tests.forge.vendor import ForgedVendor, Variant, forge

__all__ = ["ForgedVendor", "Variant", "forge"]
