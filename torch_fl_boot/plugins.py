"""Other packages that bring a device of their own to PyTorch, by the entry points that `import torch` loads."""

from __future__ import annotations

from importlib.metadata import distributions, entry_points
from typing import TYPE_CHECKING

from torch_fl_boot.errors import EntryPointsError

if TYPE_CHECKING:
    from importlib.metadata import Distribution

GROUP = "torch.backends"
_OURS = ("torch_fl", "torch_fl_boot")


def other_plugins() -> tuple[str, ...]:
    """Return `name (module)` of each plugin that torch loads by itself, this one left out, sorted.

    Entry points do not say which device type a plugin takes; those for PrivateUse1 exclude each other.

    Raises:
        EntryPointsError: some distribution's cannot be read, with which `import torch` fails too.
    """
    try:
        entries = entry_points(group=GROUP)
    except ValueError as err:
        culprits = [distribution.metadata["Name"] for distribution in distributions() if not _is_readable(distribution)]
        raise EntryPointsError(culprits, str(err)) from err
    found = {
        f"{entry.name} ({entry.value})"
        for entry in entries
        if entry.value.partition(":")[0].partition(".")[0] not in _OURS
    }
    return tuple(sorted(found))


def _is_readable(distribution: Distribution) -> bool:
    try:
        distribution.read_text("entry_points.txt")
    except ValueError:
        return False
    return True
