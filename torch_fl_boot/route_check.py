"""Whether a route can be: pure decisions from what the dispatcher says of an operator."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from torch_fl_boot.routes import Problem, Route, Target, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SHOWN = 4
"""How many names a message proposes."""

CARRIERS = frozenset(
    f"aten::{name}"
    for name in (
        "_copy_from",
        "_copy_from_and_resize",
        "_has_compatible_shallow_copy_type",
        "_resize_output_",
        "_to_copy",
        "copy_",
        "empty.memory_format",
        "empty_strided",
        "record_stream",
        "resize_",
        "set_",
        "set_.source_Storage",
        "set_.source_Storage_storage_offset",
        "set_.source_Tensor",
    )
)
"""Operators by which tensors go to the CPU and back, or which are about device memory itself: none can run there."""


@dataclass(frozen=True, kw_only=True)
class OperatorFacts:
    """What the dispatcher knows of an operator: kernels for the vendor and the CPU, and two properties.

    `composite`: it is made of other operators, from which its gradient comes. `view`: its result shares memory with an
    argument that it does not write to.
    """

    vendor: bool
    cpu: bool
    composite: bool
    view: bool


def unknown_operators(routes: Sequence[Route], operators: frozenset[str]) -> Iterator[Problem]:
    """Yield a problem for each route of an operator that does not exist, with names that are like it."""
    for route in routes:
        if route.operator not in operators:
            yield Problem(
                where=route.where,
                found=f"operator '{short(route.operator)}', which torch does not have",
                expected=_proposal(route.operator, operators),
            )


def _proposal(operator: str, operators: frozenset[str]) -> str:
    packet, _, overload = operator.partition(".")
    if overload == "default" and packet in operators:
        return f"'{short(packet)}', as the schema writes it"
    overloads = sorted(name for name in operators if name.partition(".")[0] == packet)
    if overloads:
        more = ", ..." if len(overloads) > SHOWN else ""
        return f"one overload as the schema writes it: {', '.join(map(short, overloads[:SHOWN]))}{more}"
    similar = get_close_matches(short(operator), map(short, operators), n=SHOWN)
    likeness = f", like {', '.join(similar)}" if similar else ""
    return f"the name of an ATen operator or namespace::name{likeness}"


def impossible_routes(
    routes: Sequence[Route], facts_of: Callable[[str], OperatorFacts], *, python_built: bool
) -> Iterator[Problem]:
    """Yield a problem for each route that cannot work; each operator must exist."""
    for route in routes:
        facts = facts_of(route.operator)
        if reason := _refusal(route, facts, python_built=python_built):
            found, expected = reason
            yield Problem(
                where=route.where, found=f"{short(route.operator)} = {route.target.value}, {found}", expected=expected
            )


def _refusal(route: Route, facts: OperatorFacts, *, python_built: bool) -> tuple[str, str] | None:
    """Return what is wrong with a route and what would be right; None if it can be."""
    if route.target is Target.CUDA:
        missing = not (facts.vendor or facts.composite)
        return ("but the vendor has no kernel for it", "cpu or flagos_python") if missing else None
    if route.target is Target.PYTHON and not python_built:
        return "but this wheel was built without Python operators", "a wheel built with FLAGGEMS_KERNEL=ON"
    if facts.composite:
        return (
            "but it is made of other operators, and its gradient comes from them",
            "routes for the operators that it is made of",
        )
    return _cpu_refusal(route, facts) if route.target is Target.CPU else None


def _cpu_refusal(route: Route, facts: OperatorFacts) -> tuple[str, str] | None:
    if route.operator in CARRIERS:
        return "but tensors reach the CPU by it", "cuda"
    if facts.view:
        return "but its result shares its argument's memory, which one made on the CPU cannot", "cuda"
    if not facts.cpu:
        return "but the CPU has no kernel for it", "cuda"
    return None
