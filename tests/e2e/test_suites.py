"""What `--suite core` leaves out of the integration suite: exactly what says nothing about one more backend."""

from __future__ import annotations

import ast
import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.e2e.pipeline import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.slow

SUITE = REPOSITORY / "tests" / "integration"
FORWARD = "sweeps/test_operators.py::test_operator_must_agree_with_the_cpu"
# A plugin for pytest, which tells of each collected test what it is marked with.
MARKS = """
import json, pathlib
def pytest_collection_finish(session):
    marks = {item.nodeid: [mark.name for mark in item.iter_markers()] for item in session.items}
    pathlib.Path("marks.json").write_text(json.dumps(marks))
"""


@dataclass(frozen=True)
class Collection:
    """The tests of one choice with their marks, without those that stand for an empty set of parameters."""

    marks: Mapping[str, list[str]]
    deselected: frozenset[str]

    @property
    def alone(self) -> frozenset[str]:
        return frozenset(test for test, marks in self.marks.items() if "plugin_alone" in marks)


@pytest.fixture(scope="module")
def collections(installed, tmp_path_factory):
    """Return what the real suite collects for `--suite full` and for `--suite core`; none of it is run."""
    site, suite = installed("metax"), tmp_path_factory.mktemp("suites") / "suite"
    shutil.copytree(SUITE, suite, ignore=shutil.ignore_patterns("__pycache__"))
    (suite / "marks.py").write_text(MARKS)

    def collect(choice):
        command = ["-m", "pytest", "-p", "reporting", "-p", "marks", "--report-json", "report.json", "--collect-only"]
        done = site.start(*command, "--quiet", "--suite", choice, cwd=suite)
        assert done.code == 0, done.out[-4000:] + done.err
        marks = json.loads((suite / "marks.json").read_text())
        return Collection(
            marks={test: names for test, names in marks.items() if not test.endswith("[NOTSET]")},
            deselected=frozenset(json.loads((suite / "report.json").read_text())["deselected"]),
        )

    return collect("full"), collect("core")


def test_full_suite_must_leave_out_nothing(collections):
    full, _ = collections
    assert full.alone
    assert sorted(full.deselected) == []


def test_core_suite_must_leave_out_the_marked_tests_and_cases_of_the_sweeps_alone(collections):
    full, core = collections
    assert sorted(core.deselected ^ full.alone) == []
    assert sorted(set(core.marks) - set(full.marks)) == []
    left = set(full.marks) - set(core.marks) - full.alone
    functions = {test.partition("[")[0] for test in left}
    assert FORWARD in functions
    # Of the other sweeps nothing is left.
    assert {test.partition("[")[0] for test in core.marks} & functions == {FORWARD}


def families():
    """Return the operators that stand for their families, as the sweeps list them."""
    for node in ast.parse((SUITE / "sweeps" / "cases.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CORE" and isinstance(node.value, ast.Call):
            return ast.literal_eval(node.value.args[0])
    pytest.fail("sweeps/cases.py has no CORE = frozenset([...])")


def cases_of(collection):
    """Return the cases of the sweep that the core suite keeps: operator (with its variant), and data type."""
    cases = [
        test.removeprefix(f"{FORWARD}[").removesuffix("]") for test in collection.marks if test.startswith(FORWARD)
    ]
    return [(name, dtype) for name, _, dtype in (case.rpartition("-") for case in cases)]


def test_core_suite_must_keep_one_operator_of_each_family_in_one_precision(collections):
    full, core = map(cases_of, collections)
    kept = dict(core)
    assert len(kept) == len(core)
    # A family's operator is there with all its variants.
    names = {
        family: {name for name in dict(full) if name == family or name.startswith(f"{family}.")}
        for family in families()
    }
    assert [family for family, found in names.items() if not found] == []
    assert set(kept) == set().union(*names.values())
    assert [(name, dtype) for name, dtype in core if dtype != "float32" and (name, "float32") in full] == []
