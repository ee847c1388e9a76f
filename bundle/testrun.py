"""Judging a run of the integration suite: every collected test must be accounted for, and a dead worker names its test.

The suite's own plugin (tests/integration/reporting.py) writes the report; its schema is documented there.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bundle.errors import MalformedError, NothingBundledError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bundle.backends import KnownAbort

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class OperatorCoverage:
    """How many operators have a kernel of the vendor's, how many of them the suite executed, and the rest by name."""

    registered: int
    executed: int
    missing: tuple[str, ...]

    @classmethod
    def from_json(cls, data: dict[str, Any] | None) -> OperatorCoverage | None:
        """Return what a report holds; None where the run did not count."""
        return None if data is None else cls(**{**data, "missing": tuple(data["missing"])})

    @property
    def percent(self) -> float:
        """Return the executed part of a hundred."""
        return 100.0 * self.executed / self.registered if self.registered else 0.0


@dataclass(frozen=True, kw_only=True)
class SuiteReport:
    """What the plugin wrote: collected ids, each id's outcome and detail, and why each dead worker died."""

    collected: tuple[str, ...]
    outcomes: Mapping[str, str]
    details: Mapping[str, str]
    deaths: tuple[str, ...]
    environment: Mapping[str, object]
    operators: OperatorCoverage | None = None


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What became of the tests of a run; `known` are aborts the backend lists."""

    collected: int
    passed: int
    failed: int
    known: int
    aborted: int
    skipped: int
    operators: OperatorCoverage | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict(Counts):
    """The judged run. `problems` is empty exactly if the run is good."""

    problems: tuple[str, ...]


def read_report(path: Path) -> SuiteReport:
    """Read the plugin's report.

    Raises:
        NothingBundledError: there is none, so pytest did not get as far as running tests.
        MalformedError: the file is not such a report.
    """
    if not path.is_file():
        raise NothingBundledError(f"the test run left no report at {path}", stage="verify", backend="NAME")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise MalformedError(f"{path}: schema {data['schema']!r}, expected {SCHEMA}")
        return SuiteReport(
            collected=tuple(data["collected"]),
            outcomes={test: entry["outcome"] for test, entry in data["outcomes"].items()},
            details={test: entry.get("detail", "") for test, entry in data["outcomes"].items()},
            deaths=tuple(f"{death['worker']}: {death['detail']}" for death in data["worker_deaths"]),
            environment=data["environment"],
            operators=OperatorCoverage.from_json(data.get("operators")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise MalformedError(f"{path}: not a test report: {err!r}") from err


def _uncovered(report: SuiteReport, least_percent: float | None) -> list[str]:
    if least_percent is None:
        return []
    if report.operators is None:
        return [f"the run did not count operators; expected {least_percent:g} % of them to be executed"]
    found = report.operators
    if found.percent >= least_percent:
        return []
    counts = f"{found.executed} of {found.registered} operators ({found.percent:.1f} %)"
    return [f"the suite executed {counts}, expected {least_percent:g} %; missing: {', '.join(found.missing)}"]


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return f": {lines[-1].strip()[:200]}" if lines else ""


def judge(report: SuiteReport, known_aborts: tuple[KnownAbort, ...], *, least_percent: float | None = None) -> Verdict:
    """Compare collected and reported tests, and hold aborts against the backend's list.

    A known abort that no longer happens is a problem too: the list must not outlive the vendor's fault. With
    `least_percent`, so many of a hundred operators must have been executed.
    """
    known = {entry.test for entry in known_aborts}
    counts: Counter[str] = Counter()
    problems = []
    for test in report.collected:
        outcome = report.outcomes.get(test, "missing")
        if outcome == "aborted" and test in known:
            outcome = "known"
        elif test in known and outcome == "passed":
            problems.append(f"{test}: listed as a known abort, but it passed; take it off the backend's list")
        elif outcome not in {"passed", "skipped"}:
            problems.append(f"{test}: {outcome}{_first_line(report.details.get(test, ''))}")
        counts[outcome] += 1
    strangers = sorted(set(report.outcomes) - set(report.collected))
    problems += [f"{test}: reported but never collected" for test in strangers]
    aborts = counts["aborted"] + counts["known"]
    if len(report.deaths) > aborts:
        problems.append(f"{len(report.deaths)} workers died, {aborts} of them in a test: {'; '.join(report.deaths)}")
    problems += _uncovered(report, least_percent)
    if not report.collected:
        problems.append("no test was collected")
    return Verdict(
        collected=len(report.collected),
        passed=counts["passed"],
        failed=counts["failed"] + counts["error"] + counts["missing"],
        known=counts["known"],
        aborted=counts["aborted"],
        skipped=counts["skipped"],
        operators=report.operators,
        problems=tuple(problems),
    )
