"""What `torch_fl.pth` runs at every interpreter start: it announces interest in `torch`, and does nothing else.

Interpreters that never import torch pay for this module alone, so it imports nothing but sys: not even `__future__`,
hence the quoted annotations.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class TorchFinder:
    """A finder for sys.meta_path: the other finders' answer for `torch`, with its execution led past us."""

    def find_spec(
        self, fullname: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Know nothing of other modules; for torch, see `hook_import`."""
        if fullname != "torch":
            return None
        try:
            from torch_fl_boot.hook_import import find_torch  # noqa: PLC0415 - not before torch is asked for
        except ModuleNotFoundError:  # uninstalled since this process started
            return None
        return find_torch(self, path, target)


def install() -> None:
    """Put the finder first, once: a virtual environment has its .pth files processed twice."""
    if not any(type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, TorchFinder())


install()
