"""Other packages that bring a device of their own to PyTorch, by the entry points that `import torch` loads."""

from __future__ import annotations

from importlib.metadata import entry_points

GROUP = "torch.backends"
_OURS = ("torch_fl", "torch_fl_boot")


def other_plugins() -> tuple[str, ...]:
    """Return `name (module)` of each plugin that torch loads by itself, this one left out, sorted.

    Entry points do not say which device type a plugin takes; those for PrivateUse1 exclude each other.
    """
    found = {
        f"{entry.name} ({entry.value})"
        for entry in entry_points(group=GROUP)
        if entry.value.partition(":")[0].partition(".")[0] not in _OURS
    }
    return tuple(sorted(found))
