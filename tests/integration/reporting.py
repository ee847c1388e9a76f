"""A pytest plugin that writes what happened to each test as JSON, also when workers die.

Load it with `-p reporting` and name the file with `--report-json PATH`. With xdist the controller writes it, so that a
worker killed by a kernel's abort takes only its own test with it. The file appears by rename when the session ends; an
older file of that name is removed when the session starts, so a missing file means that pytest itself died.

    {
      "schema": 1,
      "collected": [ID, ...],            every test that was to run, in order
      "deselected": [ID, ...],           tests left out by --no-device, --suite core, -k or -m
      "outcomes": {
        ID: {
          "outcome": "passed" | "failed" | "error" | "skipped" | "aborted",
          "worker": "gw0",               "main" without xdist
          "detail": "the error in one line, or the reason of a skip; empty when passed"
        }, ...
      },
      "worker_deaths": [{"worker": "gw1", "detail": "..."}, ...],
      "slow_exits": ["gw1", ...],        workers that xdist had to kill because they took over ten seconds to end
      "operators": {                     with --count-operators, else null; subprocesses of tests are not counted
        "registered": count of operators with a kernel of the vendor's, "executed": how many of them ran on flagos,
        "missing": [NAME, ...]           the rest
      },
      "exit_status": 0,                  pytest's own, e.g. 1 failed, 2 interrupted, 5 no tests
      "environment": {
        "python", "torch", "torch_fl", "pytest", "xdist": version strings ("xdist" is null when absent),
        "backend", "core", "strategy", "forged", "vendor_torch": as torch_fl.bundle() says,
        "devices": count,
        "libraries": [path, ...]         libtorch*, libc10*, libcaffe2* mapped in the controller or in any worker
      }
    }

`failed` is a failed assertion or exception in the test, `error` one in a fixture or while a file was collected (the id
is then the file's), `aborted` means that the worker process died in that test. An id in `collected` without an outcome
never ran; comparing the two is the reader's task. `worker_deaths` lists every worker that died, in a test or outside
one, and those that ended with a signal after their last test; each makes the exit status 1. `slow_exits` do not: on a
busy machine they prove nothing. Ids are relative to this folder.
"""

from __future__ import annotations

import json
import platform
import re
import signal
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import operators
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

SCHEMA = 1
SUITE = Path(__file__).resolve().parent
DETAIL_LENGTH = 1200
# The worst thing said of a test wins over what its other phases report.
RANK = ("passed", "skipped", "failed", "error", "aborted")
# What xdist calls the phase of a test whose worker died.
DIED = "???"
TORCH_LIBRARY = re.compile(r"/lib(?:torch|c10|caffe2)[^/]*\.so[^/]*$")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--report-json", metavar="PATH", help="write the outcome of every test to this file")
    parser.addoption("--count-operators", action="store_true", help="note which of the vendor's operators are executed")


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Remove an older report before anything of this run can fail."""
    target = early_config.known_args_namespace.report_json
    if target:
        Path(target).unlink(missing_ok=True)


def pytest_configure(config: pytest.Config) -> None:
    target = config.getoption("--report-json")
    if config.getoption("--count-operators"):
        operators.start_recording()
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(WorkerReport(config), "flagos-worker-report")
    elif target:
        config.pluginmanager.register(Report(Path(target).absolute(), config), "flagos-report")


def mapped_torch_libraries() -> list[str]:
    """Return the paths of torch's libraries that this process has mapped."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    return sorted(path for path in paths if TORCH_LIBRARY.search(path))


def describe_environment() -> dict[str, Any]:
    """Return the `environment` of the report; see the top of this file."""
    # Not imported: conftest.py has done so, in the right order, and this file is loaded before it.
    torch, info = sys.modules["torch"], sys.modules["torch_fl"].bundle()
    installed = {name: _version(name) for name in ("torch_fl", "pytest", "pytest-xdist")}
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_fl": installed["torch_fl"],
        "pytest": installed["pytest"],
        "xdist": installed["pytest-xdist"],
        "backend": info.backend,
        "core": info.core,
        "strategy": info.strategy,
        "forged": info.forged,
        "vendor_torch": info.vendor_torch,
        "devices": torch.flagos.device_count(),
        "libraries": mapped_torch_libraries(),
    }


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:DETAIL_LENGTH] if lines else ""


def _detail(report: pytest.TestReport | pytest.CollectReport) -> str:
    """One line that says why: the crash message where there is one, the reason of a skip, or the last line.

    Of a long message the middle is left out: the first words name what failed, the last ones how far off it was.
    """
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        words = " ".join(str(crash.message).split())
        half = DETAIL_LENGTH // 2
        return words if len(words) <= DETAIL_LENGTH else f"{words[:half]} ... {words[-half:]}"
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])[:DETAIL_LENGTH]
    return _last_line(str(report.longrepr or ""))


def _outcome(report: pytest.TestReport) -> str:
    if report.when == DIED:
        return "aborted"
    if report.failed:
        return "failed" if report.when == "call" else "error"
    return "skipped" if report.skipped else "passed"


class _Names:
    """Turns pytest's node ids, relative to its root, into ids relative to this folder."""

    def __init__(self, config: pytest.Config) -> None:
        root = config.rootpath.resolve()
        inside = root != SUITE and SUITE.is_relative_to(root)
        self._prefix = f"{SUITE.relative_to(root).as_posix()}/" if inside else ""

    def __call__(self, nodeid: str) -> str:
        return nodeid.removeprefix(self._prefix)


class WorkerReport:
    """In an xdist worker: tells the controller what only the worker knows."""

    def __init__(self, config: pytest.Config) -> None:
        self._output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined]  # xdist adds it
        self._deselected: list[str] = []
        self._told: set[str] = set()

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        self._deselected += [item.nodeid for item in items]

    def pytest_sessionfinish(self) -> None:
        self._output["flagos_deselected"] = self._deselected
        self._output["flagos_libraries"] = mapped_torch_libraries()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Operators go with each test's report: what a worker has counted must not be lost when it dies."""
        report = yield
        if call.when == "teardown":
            fresh = set(operators.executed()) - self._told
            self._told |= fresh
            report.flagos_operators = sorted(fresh)
        return report


class Report:
    """In the controller, or in the only process: gathers outcomes and writes the file when the session ends."""

    def __init__(self, path: Path, config: pytest.Config) -> None:
        self._path = path
        self._name = _Names(config)
        # Dicts for their order; a replaced worker reports the same collection again.
        self._collected: dict[str, None] = {}
        self._deselected: dict[str, None] = {}
        self._outcomes: dict[str, dict[str, str]] = {}
        self._deaths: list[dict[str, str]] = []
        self._slow: list[str] = []
        self._libraries: set[str] = set()
        self._operators: set[str] = set()
        self._counted = config.getoption("--count-operators")
        self._workers: list[Any] = []

    def _collect(self, nodeids: Iterable[str]) -> None:
        self._collected.update(dict.fromkeys(map(self._name, nodeids)))

    def _record(self, nodeid: str, outcome: str, *, worker: str, detail: str) -> None:
        name = self._name(nodeid)
        known = self._outcomes.get(name)
        if known is None or RANK.index(outcome) > RANK.index(known["outcome"]):
            self._outcomes[name] = {"outcome": outcome, "worker": worker, "detail": detail}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collect(item.nodeid for item in session.items)

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        self._deselected.update(dict.fromkeys(self._name(item.nodeid) for item in items))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._record(report.nodeid, "error", worker="main", detail=_detail(report))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        worker = getattr(getattr(report, "node", None), "gateway", None)
        outcome = _outcome(report)
        detail = "" if outcome == "passed" else _detail(report)
        self._record(report.nodeid, outcome, worker=worker.id if worker else "main", detail=detail)
        self._operators.update(getattr(report, "flagos_operators", ()))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collect(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        self._workers.append(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error:
            self._deaths.append({"worker": node.gateway.id, "detail": _last_line(str(error))})
        told = getattr(node, "workeroutput", None) or {}
        self._deselected.update(dict.fromkeys(map(self._name, told.get("flagos_deselected", ()))))
        self._libraries.update(told.get("flagos_libraries", ()))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        yield  # xdist stops its workers in here, pytest settles its exit status
        for death in self._note_late_deaths():
            session.config.get_terminal_writer().line(f"report: worker {death['worker']} {death['detail']}")
        if self._deaths and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        self._write(int(session.exitstatus))

    def _note_late_deaths(self) -> list[dict[str, str]]:
        """A worker that a signal ended after its last test: xdist does not look at exit statuses."""
        known = {death["worker"] for death in self._deaths}
        late = []
        for node in self._workers:
            process = getattr(getattr(node.gateway, "_io", None), "popen", None)
            status = process.poll() if process is not None else None
            if status is not None and status < 0 and node.gateway.id not in known:
                if -status == signal.SIGKILL:
                    self._slow.append(node.gateway.id)
                else:
                    late.append({"worker": node.gateway.id, "detail": f"ended by signal {-status} after its last test"})
        self._deaths += late
        return late

    def _write(self, exit_status: int) -> None:
        environment = describe_environment()
        environment["libraries"] = sorted(self._libraries.union(environment["libraries"]))
        content = {
            "schema": SCHEMA,
            "collected": list(self._collected),
            "deselected": list(self._deselected),
            "outcomes": self._outcomes,
            "worker_deaths": self._deaths,
            "slow_exits": self._slow,
            "operators": operators.coverage(self._operators.union(operators.executed())) if self._counted else None,
            "exit_status": exit_status,
            "environment": environment,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=self._path.parent, prefix=f".{self._path.name}.", delete=False
        ) as file:
            json.dump(content, file, indent=1, sort_keys=True)
        Path(file.name).replace(self._path)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        left = len(self._deselected)
        terminalreporter.write_line(f"report: {len(self._collected)} collected, {left} deselected; {self._path}")
        for death in self._deaths:
            terminalreporter.write_line(f"report: worker {death['worker']} died: {death['detail']}")
