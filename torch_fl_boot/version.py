"""`torch.version` after the bundle took over: the fields that stock torch leaves empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

# Overrides the `hip` field that the vendor's version.py gave; the name is the field's.
HIP_VARIABLE = "FLAGOS_DCU_HIP_VERSION"


def fields_to_restore(
    fields: Mapping[str, str], live: Mapping[str, object], environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the fields to set: those the vendor's torch reports and the live one has as None.

    Triton's and other libraries' vendor checks look at them, since version.py is generated when torch is built.
    """
    wanted = dict(fields)
    if "hip" in wanted and environ.get(HIP_VARIABLE):
        wanted["hip"] = environ[HIP_VARIABLE]
    return {name: value for name, value in wanted.items() if live.get(name) is None}


def restore_version_fields(version: ModuleType, fields: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """Set them on the module `torch.version`; `torch.__version__` stays what the installed distribution says."""
    for name, value in fields_to_restore(fields, vars(version), environ).items():
        setattr(version, name, value)
