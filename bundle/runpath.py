"""The RUNPATH of bundled files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bundle.backends import Backend

PACKAGE = "torch_fl"
ORIGIN = "$ORIGIN"
STOCK_LIB = f"{ORIGIN}/../../torch/lib"


def bundle_runpath(backend: Backend, driver_dirs: Iterable[str], *, own: Iterable[str], stock: bool) -> tuple[str, ...]:
    """Return the RUNPATH of one bundled file; entries are distinct, and none is empty or of the build machine.

    The first entry finds the siblings, by whatever path the file was opened: the loader takes $ORIGIN from that path,
    so for a link in stock torch's lib it is that folder, whose libraries may still be stock's while torch is relinked
    (docs/relink.md). The second finds stock torch's libgomp there. `stock` adds stock torch's lib, for a file
    that needs something which only stock torch has. Of the entries that the vendor's file has (`own`), those are kept
    that lead to pip-installed runtime distributions: the bundle lies as deep in site-packages as torch/lib. Driver
    directories come last.
    """
    sibling = f"{ORIGIN}/../../{PACKAGE}/{backend.bundle_dir}"
    entries = [sibling, ORIGIN, *([STOCK_LIB] if stock else [])]
    entries += [entry for entry in own if entry.startswith(_kept_roots(backend))]
    entries += driver_dirs
    return tuple(dict.fromkeys(entries))


def _kept_roots(backend: Backend) -> tuple[str, ...]:
    """Return where pip puts the distributions that the wheel requires: nvidia-cudnn-cu13 lands in nvidia/."""
    return tuple(
        f"{ORIGIN}/../../{prefix.removesuffix('-')}/" for prefix in backend.distribution_prefix if prefix.endswith("-")
    )
