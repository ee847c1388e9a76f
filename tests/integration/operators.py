"""Which of the vendor's operators a run of the suite has executed on flagos."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

# Operators on tensors; the other namespaces name steps of a trace or belong to process groups.
COUNTED = "aten::"


def start_recording() -> None:
    """Note, from now on and in this process, each operator that runs on flagos."""
    sys.modules["torch_fl._C"]._record_operators()


def executed() -> list[str]:
    """Return the operators noted so far, by their names with overloads."""
    names: list[str] = sys.modules["torch_fl._C"]._recorded_operators()
    return names


@lru_cache(maxsize=1)
def registered() -> frozenset[str]:
    """Return the ATen operators that have a kernel of the vendor's."""
    names = sys.modules["torch"]._C._dispatch_get_registrations_for_dispatch_key("CUDA")
    return frozenset(name for name in names if name.startswith(COUNTED))


def coverage(noted: Iterable[str]) -> dict[str, Any]:
    """Return how many operators there are, how many of them were executed, and the names of the rest."""
    known = registered()
    missing = known - set(noted)
    return {"registered": len(known), "executed": len(known) - len(missing), "missing": sorted(missing)}
