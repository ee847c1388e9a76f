"""What `torch_fl.bundle()` answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_fl_boot.preload import Skipped

if TYPE_CHECKING:
    from torch_fl_boot.manifest import BuildRecord, Manifest
    from torch_fl_boot.start import Started

NO_STRATEGY = "none"
STOCK_CORE = "stock"


@dataclass(frozen=True, kw_only=True)
class BundleInfo:
    """The bundle that this process runs on.

    `core` is the one torch runs on, "vendor" or "stock"; `strategy` is "preload", "relink", or "none" where torch runs
    on its own libraries: in a plain build, whose `files` are empty, and on a machine without the driver stack, where
    every library is `skipped`. `loaded` is in load order and names stock torch's libraries too where the bundle relies
    on them; `skipped` are libraries left out because their driver is absent, with the reason.
    """

    backend: str
    core: str
    strategy: str
    forged: bool
    vendor_torch: str
    files: tuple[str, ...]
    loaded: tuple[str, ...]
    skipped: tuple[Skipped, ...]


def describe(started: Started) -> BundleInfo:
    """Put together what the records and the preload say."""
    manifest, on_bundle = started.manifest, started.plan is not None
    skipped = started.preloaded.skipped
    if manifest is not None and started.absent is not None:
        reason = f"the driver stack is absent: no {', '.join(started.absent.missing)}"
        skipped = tuple(Skipped(name=step.name, reason=reason) for step in manifest.load)
    return BundleInfo(
        backend=started.build.backend,
        core=manifest.core if manifest is not None and on_bundle else STOCK_CORE,
        strategy=started.strategy if on_bundle else NO_STRATEGY,
        forged=manifest is not None and manifest.forged,
        vendor_torch=manifest.vendor_torch if manifest is not None else "",
        files=tuple(file.name for file in manifest.files) if manifest is not None else (),
        loaded=started.preloaded.loaded,
        skipped=skipped,
    )


def version_of(build: BuildRecord, manifest: Manifest | None) -> str:
    """Return the distribution's version: that of the plugin, and the label of the bundle."""
    label = manifest.label if manifest is not None else ""
    return f"{build.version}+{label}" if label else build.version
