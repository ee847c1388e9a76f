"""Judging a test run: every collected test is accounted for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bundle.backends import KnownAbort
from bundle.errors import MalformedError, NothingBundledError
from bundle.testrun import OperatorCoverage, SuiteReport, judge, read_report

KNOWN = (KnownAbort(test="test_m.py::test_bmm[1]", reason="the vendor's kernel"),)


def made(outcomes, collected=None, details=None, deaths=()):
    return SuiteReport(
        collected=tuple(outcomes if collected is None else collected),
        outcomes=outcomes,
        details=details or {},
        deaths=tuple(deaths),
        environment={},
    )


def test_clean_run_must_have_no_problem():
    verdict = judge(made({"a": "passed", "b": "skipped"}), ())
    assert (verdict.collected, verdict.passed, verdict.skipped, verdict.problems) == (2, 1, 1, ())


def test_known_abort_must_be_counted_apart_and_not_fail():
    verdict = judge(made({"test_m.py::test_bmm[1]": "aborted", "b": "passed"}), KNOWN)
    assert (verdict.known, verdict.aborted, verdict.failed, verdict.problems) == (1, 0, 0, ())


def test_unknown_abort_must_fail_and_name_the_test():
    verdict = judge(made({"t::x": "aborted"}, details={"t::x": "worker 'gw1' crashed while running 't::x'"}), KNOWN)
    assert verdict.aborted == 1
    assert verdict.problems == ("t::x: aborted: worker 'gw1' crashed while running 't::x'",)


def test_known_abort_that_passes_must_fail():
    verdict = judge(made({"test_m.py::test_bmm[1]": "passed"}), KNOWN)
    assert verdict.problems == (
        "test_m.py::test_bmm[1]: listed as a known abort, but it passed; take it off the backend's list",
    )


def test_collected_test_without_outcome_must_fail():
    verdict = judge(made({"a": "passed"}, collected=["a", "b"]), ())
    assert verdict.failed == 1
    assert verdict.problems == ("b: missing",)


def test_outcome_of_uncollected_test_must_fail():
    assert judge(made({"a": "passed", "z": "passed"}, collected=["a"]), ()).problems == (
        "z: reported but never collected",
    )


def test_worker_that_dies_outside_a_test_must_fail():
    verdict = judge(made({"test_m.py::test_bmm[1]": "aborted"}, deaths=["gw0: in bmm", "gw1: SIGSEGV at exit"]), KNOWN)
    assert verdict.problems == ("2 workers died, 1 of them in a test: gw0: in bmm; gw1: SIGSEGV at exit",)


def test_zero_tests_must_fail():
    assert judge(made({}), ()).problems == ("no test was collected",)


def test_report_must_be_read_as_written(tmp_path):
    path = tmp_path / "report.json"
    data = {
        "schema": 1,
        "collected": ["a"],
        "outcomes": {"a": {"outcome": "failed", "worker": "gw0", "detail": "assert 1 == 2"}},
        "worker_deaths": [{"worker": "gw0", "detail": "SIGSEGV at exit"}],
        "exit_status": 1,
        "environment": {"torch": "2.13.0+cpu"},
    }
    path.write_text(json.dumps(data))
    read = read_report(path)
    assert (read.collected, read.outcomes, read.details) == (("a",), {"a": "failed"}, {"a": "assert 1 == 2"})
    assert read.deaths == ("gw0: SIGSEGV at exit",)


@pytest.mark.parametrize(
    "text",
    [pytest.param("{}", id="no-schema"), pytest.param("x", id="no-json"), pytest.param('{"schema": 9}', id="other")],
)
def test_other_file_must_be_refused(tmp_path, text):
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(MalformedError, match=r"report\.json"):
        read_report(path)


def test_missing_report_must_be_refused(tmp_path):
    with pytest.raises(NothingBundledError, match="left no report"):
        read_report(tmp_path / "none.json")


def covered(executed, missing):
    return OperatorCoverage(registered=executed + len(missing), executed=executed, missing=tuple(missing))


def with_coverage(coverage):
    return replace(made({"a": "passed"}), operators=coverage)


def test_enough_executed_operators_must_be_no_problem():
    assert judge(with_coverage(covered(3, ["aten::b"])), (), least_percent=75.0).problems == ()


def test_too_few_executed_operators_must_be_named():
    verdict = judge(with_coverage(covered(1, ["aten::a", "aten::b"])), (), least_percent=85.0)
    assert verdict.problems == (
        "the suite executed 1 of 3 operators (33.3 %), expected 85 %; missing: aten::a, aten::b",
    )


def test_run_that_counted_no_operators_must_not_pass_as_covered():
    assert judge(with_coverage(None), (), least_percent=85.0).problems == (
        "the run did not count operators; expected 85 % of them to be executed",
    )


def test_operators_must_not_be_asked_for_by_default():
    assert judge(with_coverage(covered(0, ["aten::a"])), ()).problems == ()


def test_no_operators_at_all_must_be_0_percent():
    assert covered(0, []).percent == 0.0
