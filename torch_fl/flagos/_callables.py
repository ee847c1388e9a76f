"""Finding the Python callable that a route names, or FlagGems' own for an operator."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torch_fl._C import _device_count
from torch_fl_boot.routes import short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch_fl_boot.routes import Route

GEMS = "flag_gems"
GEMS_OPERATORS = "flag_gems.ops"
VENDOR_VARIABLE = "GEMS_VENDOR"
_PLAIN_OVERLOADS = ("", "tensor")
"""Overloads that FlagGems names after the operator alone; any other carries its overload in its name."""


class CallableMissingError(Exception):
    """There is no such callable: `found` says what there is, `expected` what was looked for."""

    def __init__(self, found: str, expected: str) -> None:
        self.found, self.expected = found, expected
        super().__init__(f"{found}; expected {expected}")


@dataclass(frozen=True, kw_only=True)
class PythonOperator:
    """A callable that can be an operator's kernel; `gems`: it is FlagGems', which takes the vendor's tensors only."""

    function: Callable[..., Any]
    gems: bool


class Callables:
    """Finds callables for routes. A module that cannot be imported is tried once: FlagGems asks many programs first."""

    def __init__(self) -> None:
        self._failed: dict[str, CallableMissingError] = {}

    def find(self, route: Route, schema: Any) -> PythonOperator:
        """Return the Python callable of a route to the operator with this schema; modules are imported for it.

        Raises:
            CallableMissingError: the module cannot be imported, or holds no such callable, or one that no call of the
                operator fits; the cause is chained.
        """
        module, _, name = (route.function or GEMS).partition(":")
        gems = module.partition(".")[0] == GEMS
        if gems:
            check_device(self._module(GEMS))
        function = _attribute(self._module(module), module, name) if name else self._of_gems(short(route.operator))
        if gems:
            check_fit(function, schema)
        return PythonOperator(function=function, gems=gems)

    def _of_gems(self, operator: str) -> Callable[..., Any]:
        """Return what FlagGems would register for an operator; by name, where it registers nothing."""
        gems = self._module(GEMS)
        if (registered := _registered(gems, operator)) is not None:
            return registered
        names, operators = gems_names(operator), self._module(GEMS_OPERATORS)
        for name in names:
            # The package itself has a vendor's own operator in the place of the general one.
            for module in (gems, operators):
                if hasattr(operators, name) and callable(found := getattr(module, name, None)):
                    return _as_callable(found)
        raise CallableMissingError(
            f"{GEMS} has no operator for {operator}",
            f"{' or '.join(f'{GEMS_OPERATORS}.{name}' for name in names)}, or a callable of yours: "
            "flagos_python module:function",
        )

    def _module(self, name: str) -> Any:
        if name in self._failed:
            raise self._failed[name]
        try:
            return import_module(name)
        except ImportError as err:
            failure = CallableMissingError(f"module {name} cannot be imported: {err}", "a module on sys.path")
            self._failed[name] = failure
            raise failure from err
        except Exception as err:
            # Whatever the module's own code raises; it is the user's, and the text must say so.
            words = f"module {name} fails at import: {type(err).__name__}: {' '.join(str(err).split())}"
            expected = "a module that can be imported"
            if name == GEMS:
                expected += f", which finds its device; {_vendor_asked()}"
            self._failed[name] = CallableMissingError(words, expected)
            raise self._failed[name] from err


def gems_names(operator: str) -> tuple[str, ...]:
    """Return the names that FlagGems may give an ATen operator: `sum.dim_IntList` is sum_dim_intlist or sum_dim."""
    base, _, overload = operator.partition(".")
    overload = overload.lower()
    if overload in _PLAIN_OVERLOADS:
        return (f"{base}_tensor", base) if overload else (base,)
    exact = f"{base}_{overload}"
    return (exact, exact.removesuffix("_intlist")) if exact.endswith("_intlist") else (exact,)


def check_device(gems: Any) -> None:
    """Check that FlagGems has found devices, as it notes them when it is imported.

    Raises:
        CallableMissingError: it has found none, while flagos has some.
    """
    found = getattr(getattr(gems, "runtime", None), "device", None)
    count, ours = getattr(found, "device_count", None), _device_count()
    if count == 0 and ours > 0:
        name, vendor = getattr(found, "name", "?"), getattr(found, "vendor_name", "?")
        raise CallableMissingError(
            f"{GEMS} finds no device: torch.{name}.device_count() is 0, as vendor {vendor}",
            f"{ours}, as flagos has; FlagGems needs torch.{name}, so a bundle with the vendor's core, and the vendor's "
            f"name; {_vendor_asked()}",
        )


def check_fit(function: Callable[..., Any], schema: Any) -> None:
    """Check that some call of an operator fits a function that is called as PyTorch calls it.

    Arguments with default values may be missing in such a call, so that a function may lack the last of them.

    Raises:
        CallableMissingError: no call fits.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # not every callable tells what it takes
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    named = {a.name: None for a in schema.arguments if a.kwarg_only and not a.has_default_value()}
    required = sum(not argument.has_default_value() for argument in positional)
    if any(_binds(signature, count, named) for count in range(required, len(positional) + 1)):
        return
    name = getattr(function, "__qualname__", repr(function))
    raise CallableMissingError(
        f"{getattr(function, '__module__', GEMS)}.{name}{signature} fits no call of {schema}",
        "the arguments of the operator",
    )


def _binds(signature: inspect.Signature, count: int, named: dict[str, None]) -> bool:
    try:
        signature.bind(*([None] * count), **named)
    except TypeError:
        return False
    return True


def _registered(gems: Any, operator: str) -> Callable[..., Any] | None:
    """Return what FlagGems itself would register for an operator, where its release keeps that list as data.

    An entry is an operator's name, a function and, maybe, a condition, such as a version of PyTorch. Of several entries
    for one operator whose conditions hold, PyTorch takes the first.
    """
    listed: Iterable[tuple[Any, ...]] = getattr(gems, "_FULL_CONFIG", ())
    entries = [entry for entry in listed if len(entry) > 1 and entry[0] == operator and callable(entry[1])]
    for _, function, *more in entries:
        if not (more and callable(more[0])) or more[0]():
            return _as_callable(function)
    if entries:
        raise CallableMissingError(
            f"{GEMS} has an operator for {operator}, but registers it under a condition that does not hold here",
            "a release of PyTorch that it is meant for, or a callable of yours: flagos_python module:function",
        )
    return None


def _vendor_asked() -> str:
    return f"{VENDOR_VARIABLE} is {os.environ.get(VENDOR_VARIABLE) or 'unset'}"


def _attribute(found: Any, module: str, name: str) -> Callable[..., Any]:
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
