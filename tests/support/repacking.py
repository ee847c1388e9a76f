"""Inputs of the repack stage, made from a wheel spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bundle.repack import RepackInputs

if TYPE_CHECKING:
    from pathlib import Path

    from bundle.backends import Backend
    from tests.support.wheels import WheelSpec


def inputs_of(
    spec: WheelSpec, folder: Path, *, thin: Path | None = None, label: str | None = None, backend: Backend | None = None
) -> RepackInputs:
    """Write what the two earlier stages leave, and return what the repack stage reads."""
    return RepackInputs(
        thin_wheel=thin or spec.write_thin(folder / "compile"),
        bundle_dir=spec.write_bundle(folder / "bundle"),
        backend=backend or spec.backend,
        version_label=label,
        dist=folder / "dist",
    )
