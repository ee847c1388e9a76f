"""Routes that cannot be: what the dispatcher says of an operator decides."""

from __future__ import annotations

import pytest

from torch_fl_boot.route_check import CARRIERS, OperatorFacts, impossible_routes, unknown_operators
from torch_fl_boot.routes import Route, Target, qualified

OPERATORS = frozenset(
    f"aten::{name}" for name in ("add.Tensor", "add.out", "add_.Tensor", "mm", "mm.out", "relu", "__and__.Tensor")
) | {"mine::op"}
PLAIN = OperatorFacts(vendor=True, cpu=True, composite=False, view=False)


def route(operator, target=Target.CPU):
    return Route(operator=qualified(operator), target=target, where="r.conf:1")


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        pytest.param("add", "one overload as the schema writes it: add.Tensor, add.out", id="overload-missing"),
        pytest.param("add.Tensr", "one overload as the schema writes it: add.Tensor, add.out", id="overload-wrong"),
        pytest.param("relu.default", "'relu', as the schema writes it", id="pythons-default"),
        pytest.param("rellu", "the name of an ATen operator or namespace::name, like relu", id="misspelt"),
        pytest.param("qqqq", "the name of an ATen operator or namespace::name", id="like-nothing"),
    ],
)
def test_an_unknown_operator_must_be_answered_with_what_there_is(operator, expected):
    [problem] = unknown_operators([route(operator)], OPERATORS)
    assert str(problem) == f"r.conf:1: operator '{operator}', which torch does not have; expected {expected}"


def refused(one, facts, *, python_built=True):
    return [problem.found for problem in impossible_routes([one], lambda _: facts, python_built=python_built)]


@pytest.mark.parametrize("target", [pytest.param(target, id=target.value) for target in Target])
def test_an_operator_with_kernels_must_take_every_target(target):
    assert refused(route("mm", target), PLAIN) == []


@pytest.mark.parametrize(
    ("operator", "target", "change", "found"),
    [
        pytest.param("mm", Target.CUDA, {"vendor": False}, "but the vendor has no kernel for it", id="vendor-lacks-it"),
        pytest.param("mm", Target.CPU, {"cpu": False}, "but the CPU has no kernel for it", id="cpu-lacks-it"),
        pytest.param("mm", Target.CPU, {"view": True}, "but its result shares its argument's memory", id="view"),
        pytest.param("mm", Target.CPU, {"composite": True}, "but it is made of other operators", id="composite-cpu"),
        pytest.param("mm", Target.PYTHON, {"composite": True}, "but it is made of other", id="composite-python"),
        pytest.param("copy_", Target.CPU, {}, "but tensors reach the CPU by it", id="carrier"),
    ],
)
def test_a_route_that_cannot_work_must_be_refused(operator, target, change, found):
    facts = OperatorFacts(**{"vendor": True, "cpu": True, "composite": False, "view": False, **change})
    [problem] = refused(route(operator, target), facts)
    assert problem.startswith(f"{operator} = {target.value}, {found}")


def test_a_composite_must_be_allowed_to_stay_on_the_vendor():
    facts = OperatorFacts(vendor=False, cpu=False, composite=True, view=False)
    assert refused(route("mm", Target.CUDA), facts) == []


def test_a_build_without_python_operators_must_refuse_them():
    [problem] = refused(route("mm", Target.PYTHON), PLAIN, python_built=False)
    assert problem == "mm = flagos_python, but this wheel was built without Python operators"


def test_the_names_of_carriers_must_be_full():
    assert all(name.startswith("aten::") for name in CARRIERS)
