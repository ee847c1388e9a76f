"""Which names of torch/lib become links, decided from the manifest and what is there; and whether that is safe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_fl_boot.manifest import LOADED_ROLES, VENDOR_CORE
from torch_fl_boot.relink.errors import USE_PRELOAD, RelinkRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch_fl_boot.manifest import Manifest

PACKAGE = "torch_fl"
ENTRY = "libtorch_python.so"
_ORIGIN = "$ORIGIN"


@dataclass(frozen=True, kw_only=True)
class RelinkPlan:
    """The links by name, each with its text; `entry` is switched first, alone; "" where no core library is replaced."""

    links: tuple[tuple[str, str], ...]
    entry: str


def plan_relink(manifest: Manifest, stock: Mapping[str, tuple[str, ...]]) -> RelinkPlan:
    """Decide; `stock` gives DT_NEEDED of the libraries in torch/lib by name.

    Raises:
        RelinkRefusedError: a process could run on a mixture while the links are put in place.
    """
    names = [file.name for file in manifest.files if file.role in LOADED_ROLES]
    links = tuple((name, f"../../{PACKAGE}/{manifest.bundle_dir}/{name}") for name in names)
    if manifest.core != VENDOR_CORE:
        return RelinkPlan(links=tuple(link for link in links if link[0] not in stock), entry="")
    if ENTRY not in names:
        raise RelinkRefusedError(f"the bundle of backend {manifest.backend} has no {ENTRY}", hint=USE_PRELOAD)
    if wrong := _look_in_torch_first(manifest):
        raise RelinkRefusedError(
            f"bundled libraries look for each other in torch/lib before the bundle: {', '.join(wrong)}",
            hint=f"rebuild the wheel with `nox -s wheel-{manifest.backend}`, or {USE_PRELOAD}",
        )
    if mixed := _from_stock(manifest, stock):
        raise RelinkRefusedError(
            f"with {ENTRY} of the bundle, the loader would take from stock torch: {', '.join(mixed)}", hint=USE_PRELOAD
        )
    return RelinkPlan(links=links, entry=ENTRY)


def _look_in_torch_first(manifest: Manifest) -> list[str]:
    """Return the libraries that, opened through torch/lib, find a sibling there before they find the bundle's."""
    sibling = f"{_ORIGIN}/../../{PACKAGE}/{manifest.bundle_dir}"
    bundled = {name for file in manifest.files for name in (file.name, file.soname)}
    return [
        file.name
        for file in manifest.files
        if bundled.intersection(file.needed) and next(iter(_leading(file.runpath, sibling)), "") != sibling
    ]


def _leading(runpath: tuple[str, ...], sibling: str) -> list[str]:
    return [entry for entry in runpath if entry in (_ORIGIN, sibling)]


def _from_stock(manifest: Manifest, stock: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Follow the loader, breadth first, from the bundle's entry while all else in torch/lib is stock's."""
    needs = {name: file.needed for file in manifest.files for name in (file.name, file.soname) if name}
    loaded, todo, wrong = {ENTRY}, [(ENTRY, True)], []
    while todo:
        name, bundled = todo.pop(0)
        for need in needs[name] if bundled else stock[name]:
            if need in loaded or not (need in needs or need in stock):
                continue
            loaded.add(need)
            from_bundle = need in needs and (bundled or need not in stock)
            if need in needs and not from_bundle:
                wrong.append(need)
            todo.append((need, from_bundle))
    return sorted(wrong)
