"""The proof after the import: every core library is mapped once, and from where the plan says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_fl_boot.errors import MixedCoreError
from torch_fl_boot.maps import copies_of
from torch_fl_boot.plan import GLOBAL_DEPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def check_origins(origins: Mapping[str, Path], mapped: Mapping[str, tuple[str, ...]]) -> None:
    """Compare what is mapped with where each library may come from.

    libtorch_global_deps is left out: torch opens its own by path, and it holds no code.

    Raises:
        MixedCoreError: listing every library with another origin or more than one.
    """
    problems = list(_problems(origins, mapped))
    if problems:
        raise MixedCoreError(problems)


def _problems(origins: Mapping[str, Path], mapped: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for name, paths in copies_of(origins, mapped).items():
        expected = str(origins[name].resolve())
        if name != GLOBAL_DEPS and paths != (expected,):
            yield f"{name} is mapped from {', '.join(paths)}; expected {expected}"
