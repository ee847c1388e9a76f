"""Finding the Python callable that a route names, or FlagGems' own for an operator."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch_fl_boot.routes import short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch_fl_boot.routes import Route

GEMS = "flag_gems"
GEMS_OPERATORS = "flag_gems.ops"
_PLAIN_OVERLOADS = ("", "tensor")
"""Overloads that FlagGems names after the operator alone; any other carries its overload in its name."""


class CallableMissingError(Exception):
    """There is no such callable: `found` says what there is, `expected` what was looked for."""

    def __init__(self, found: str, expected: str) -> None:
        self.found, self.expected = found, expected
        super().__init__(f"{found}; expected {expected}")


def find_callable(route: Route) -> Callable[..., Any]:
    """Return the Python callable of a route; modules are imported for it.

    Raises:
        CallableMissingError: the module cannot be imported, or holds no such callable; the cause is chained.
    """
    if route.function is not None:
        module, _, name = route.function.partition(":")
        return _attribute(module, name)
    registered = _registered_by_gems(short(route.operator))
    if registered is not None:
        return registered
    names = gems_names(short(route.operator))
    module = _module(GEMS_OPERATORS)
    for name in names:
        found = getattr(module, name, None)
        if callable(found):
            return _as_callable(found)
    raise CallableMissingError(
        f"{GEMS} has no operator for {short(route.operator)}",
        f"{' or '.join(f'{GEMS_OPERATORS}.{name}' for name in names)}, or a callable of yours: "
        "flagos_python module:function",
    )


def gems_names(operator: str) -> tuple[str, ...]:
    """Return the names that FlagGems may give an ATen operator: `sum.dim_IntList` is sum_dim_intlist or sum_dim."""
    base, _, overload = operator.partition(".")
    overload = overload.lower()
    if overload in _PLAIN_OVERLOADS:
        return (f"{base}_tensor", base) if overload else (base,)
    exact = f"{base}_{overload}"
    return (exact, exact.removesuffix("_intlist")) if exact.endswith("_intlist") else (exact,)


def _registered_by_gems(operator: str) -> Callable[..., Any] | None:
    """Return what FlagGems itself would register for an operator, where its release keeps that list as data."""
    listed: Iterable[tuple[Any, ...]] = getattr(_module(GEMS), "_FULL_CONFIG", ())
    for entry in listed:
        if len(entry) > 1 and entry[0] == operator and callable(entry[1]):
            return _as_callable(entry[1])
    return None


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as err:
        raise CallableMissingError(f"module {name} cannot be imported: {err}", "a module on sys.path") from err
    except Exception as err:
        # Whatever the module's own code raises; it is the user's, and the text must say so.
        raise CallableMissingError(
            f"module {name} fails at import: {type(err).__name__}: {err}", "a module that can be imported"
        ) from err


def _attribute(module: str, name: str) -> Callable[..., Any]:
    found: Any = _module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise CallableMissingError(f"module {module} has no '{name}'", f"a callable {module}:{name}")
        found = getattr(found, part)
    if not callable(found):
        raise CallableMissingError(f"{module}:{name} is of type {type(found).__name__}", "a callable")
    return _as_callable(found)


def _as_callable(found: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = found
    return function
