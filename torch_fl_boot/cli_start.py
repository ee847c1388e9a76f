"""Whether an interpreter was started for a command of torch_fl; not in `cli`, since every `import torch_fl` asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def started_as_command(argv: Sequence[str], orig_argv: Sequence[str], package: str) -> bool:
    """Whether this interpreter is on the way to run `python -m PACKAGE`: it imports the package before its `__main__`.

    `argv` and `orig_argv` are those of sys. While the module is being located, argv[0] is "-m"; that it is this package
    which was named is told by the last of the interpreter's own arguments: `-m NAME`, `-Im NAME`, or `-mNAME`.
    """
    if not argv or argv[0] != "-m":
        return False
    *before, last = orig_argv[: len(orig_argv) - len(argv) + 1] or [""]
    option = before[-1] if before else ""
    for name in (package, f"{package}.__main__"):
        if last == name and _is_cluster(option):
            return True
        if last.endswith(name) and _is_cluster(last.removesuffix(name)):
            return True
    return False


def _is_cluster(option: str) -> bool:
    """Whether it is one-letter options of which the last is m: -m, -Im, -uBm."""
    return option.startswith("-") and option.endswith("m") and option[1:].isalpha()
