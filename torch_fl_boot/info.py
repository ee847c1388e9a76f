"""What `torch_fl.bundle()` answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_fl_boot.manifest import BuildRecord, Manifest
    from torch_fl_boot.preload import Preloaded, Skipped

NO_STRATEGY = "none"
STOCK_CORE = "stock"


@dataclass(frozen=True, kw_only=True)
class BundleInfo:
    """The bundle that this process runs on.

    `core` is "vendor" or "stock"; `strategy` is "preload" or "relink", or "none" for a plain build, whose `files` are
    empty; `loaded` is in load order and names stock torch's libraries too where the bundle relies on them; `skipped`
    are libraries left out because their driver is absent, with the loader's words.
    """

    backend: str
    core: str
    strategy: str
    forged: bool
    vendor_torch: str
    files: tuple[str, ...]
    loaded: tuple[str, ...]
    skipped: tuple[Skipped, ...]


def describe(build: BuildRecord, manifest: Manifest | None, strategy: str, preloaded: Preloaded) -> BundleInfo:
    """Put together what the records and the preload say."""
    if manifest is None:
        return BundleInfo(
            backend=build.backend,
            core=STOCK_CORE,
            strategy=NO_STRATEGY,
            forged=False,
            vendor_torch="",
            files=(),
            loaded=(),
            skipped=(),
        )
    return BundleInfo(
        backend=manifest.backend,
        core=manifest.core,
        strategy=strategy,
        forged=manifest.forged,
        vendor_torch=manifest.vendor_torch,
        files=tuple(file.name for file in manifest.files),
        loaded=preloaded.loaded,
        skipped=preloaded.skipped,
    )


def version_of(build: BuildRecord, manifest: Manifest | None) -> str:
    """Return the distribution's version: that of the plugin, and the label of the bundle."""
    label = manifest.label if manifest is not None else ""
    return f"{build.version}+{label}" if label else build.version
