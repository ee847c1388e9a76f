"""Routing: which kernel an operator gets, by FLAGOS_BACKEND_CONFIG and FLAGOS_OP_<name>; and the log of dispatches.

Routes are applied once, when the plugin is loaded: kernels are replaced in PyTorch's dispatcher, so that operators
without a route, and processes without routing, pay nothing. docs/routing.md tells what may be written.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from torch._C import (
    _dispatch_get_all_op_names,
    _dispatch_has_computed_kernel_for_dispatch_key,
    _dispatch_has_kernel_for_dispatch_key,
    _get_schema,
)

from torch_fl import _C
from torch_fl._C import _build_options, _log_dispatch, _route_cpu
from torch_fl.flagos._callables import CallableMissingError, Callables, PythonOperator
from torch_fl_boot.errors import RoutingError
from torch_fl_boot.route_check import OperatorFacts, impossible_routes, unknown_operators
from torch_fl_boot.routes import CONFIG_VARIABLE, OPERATOR_PREFIX, Problem, Route, Target, read_routes, short

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LOG_VARIABLE = "FLAGOS_LOG"
DISPATCH_LOG_VARIABLE = "FLAGOS_LOG_DISPATCH"
_ON = ("1", "true", "on", "yes")
_OFF = ("", "0", "false", "off", "no")

_applied: dict[str, str] = {}


class RoutingWarning(UserWarning):
    """Something in the routing's files or variables that says nothing, and was left out."""


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A route that can be applied, with its Python operator where it has one."""

    route: Route
    python: PythonOperator | None


def routes() -> dict[str, str]:
    """Return the routes that hold in this process: operator and target, as the files write them."""
    return dict(_applied)


def apply_environment(environ: Mapping[str, str]) -> None:
    """Follow the routing that the environment asks for, if any. Called once, after the device is registered.

    Raises:
        RoutingError: something in it cannot be followed; nothing of it is applied then.
    """
    if environ.get(CONFIG_VARIABLE) or any(name.startswith(OPERATOR_PREFIX) for name in environ):
        _apply(environ)
    if logs_dispatch(environ):
        _log_dispatch()


def logs_dispatch(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for a line per dispatch: FLAGOS_LOG=dispatch or FLAGOS_LOG_DISPATCH=1."""
    words = {word.strip() for word in environ.get(LOG_VARIABLE, "").split(",")} - {""}
    if unknown := sorted(words - {"dispatch"}):
        warnings.warn(f"{LOG_VARIABLE} holds {', '.join(unknown)}; known is: dispatch", RoutingWarning, stacklevel=2)
    switch = environ.get(DISPATCH_LOG_VARIABLE, "").strip().lower()
    if switch not in _ON + _OFF:
        warnings.warn(f"{DISPATCH_LOG_VARIABLE}={switch!r}; expected 1 or 0", RoutingWarning, stacklevel=2)
    return "dispatch" in words or switch in _ON


def _apply(environ: Mapping[str, str]) -> None:
    operators = frozenset(_dispatch_get_all_op_names())
    parsed = read_routes(environ, operators)
    for line in parsed.ignored:
        warnings.warn(f"routing: {line}; the line is ignored", RoutingWarning, stacklevel=2)
    problems = list(parsed.problems)
    problems += unknown_operators(parsed.routes, operators)
    known = [route for route in parsed.routes if route.operator in operators]
    found = list(_resolve(known, problems))
    if problems:
        raise RoutingError(problems)
    for one in found:
        _install(one)


def _resolve(known: Sequence[Route], problems: list[Problem]) -> Iterator[_Found]:
    """Yield what can be applied; add to `problems` what cannot."""
    python_built = bool(_build_options()["flaggems_python"])
    callables = Callables()
    told: set[tuple[str, str]] = set()
    for route in known:
        if refused := list(impossible_routes([route], _facts, python_built=python_built)):
            problems += refused
            continue
        python = None
        if route.target is Target.PYTHON:
            try:
                python = callables.find(route, _schema(route.operator))
            except CallableMissingError as err:
                # What is wrong with a package is said at the first route that needs it.
                if (err.found, err.expected) not in told:
                    told.add((err.found, err.expected))
                    problems.append(Problem(where=route.where, found=err.found, expected=err.expected))
                continue
        yield _Found(route=route, python=python)


def _install(found: _Found) -> None:
    operator = found.route.operator
    if found.python is not None:
        _C._route_python(operator, found.python.function, found.python.gems)  # noqa: SLF001 - only some builds have it
    elif found.route.target is Target.CPU:
        _route_cpu(operator)
    _applied[short(operator)] = found.route.target.value


def _schema(operator: str) -> Any:
    name, _, overload = operator.partition(".")
    return _get_schema(name, overload)


def _facts(operator: str) -> OperatorFacts:
    has = partial(_dispatch_has_kernel_for_dispatch_key, operator)
    runs = partial(_dispatch_has_computed_kernel_for_dispatch_key, operator)
    schema = _schema(operator)
    shared = [result.alias_info for result in schema.returns if result.alias_info is not None]
    return OperatorFacts(
        vendor=runs("CUDA"),
        cpu=runs("CPU"),
        composite=has("CompositeImplicitAutograd"),
        view=any(not info.is_write for info in shared),
    )
