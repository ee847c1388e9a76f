"""How a sweep's test function says which cases it is run for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def sweep(kind: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a test function: conftest.py parametrizes its `case` with every case of this kind."""

    def mark(function: Callable[..., None]) -> Callable[..., None]:
        function.sweep = kind  # type: ignore[attr-defined]  # functions take attributes
        return function

    return mark


def sweep_of(function: Any) -> str | None:
    """Return the kind that `sweep` marked a function with, or None."""
    return getattr(function, "sweep", None)
