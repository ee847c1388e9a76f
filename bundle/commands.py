"""One function per command of `python -m bundle`; each returns the exit code. Refusals are raised, not returned."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from bundle import pipeline
from bundle.audit import audit
from bundle.errors import BundleError, NothingBundledError
from bundle.locks import exclusive
from bundle.reports import HEADER, read_reports, write_report
from bundle.verify import check_wheel, finished_wheel
from bundle.workspace import Workspace

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from bundle.audit import AuditReport
    from bundle.pipeline import Request
    from bundle.reports import Verification
    from bundle.ui import Reporter

FINDINGS = 1
MAX_WORKERS = 8


@dataclass(frozen=True, kw_only=True)
class Call:
    """One start of the tool: parsed arguments, the request they make (where a backend is named), and the seams."""

    arguments: argparse.Namespace
    asked: Request | None
    environ: Mapping[str, str]
    ui: Reporter

    @property
    def request(self) -> Request:
        """Return the request of a command that takes a backend."""
        if self.asked is None:
            raise BundleError(f"command {self.arguments.command} was declared without --backend")
        return self.asked


def compile_command(call: Call) -> int:
    """Compile the plugin; stdout: the thin wheel's path."""
    stock = pipeline.stock_torch(call.request, call.environ, call.ui)
    call.ui.result(str(pipeline.compile_wheel(call.request, stock, call.environ, call.ui)))
    return 0


def plan_command(call: Call) -> int:
    """Show the bundle's plan; stdout: the plan as text or JSON."""
    stock = pipeline.stock_torch(call.request, call.environ, call.ui)
    plan = pipeline.plan(call.request, stock, call.environ, call.ui).plan
    call.ui.result(plan.to_json() if call.arguments.json else plan.to_text())
    return 0


def bundle_command(call: Call) -> int:
    """Write the bundle; stdout: its folder."""
    stock = pipeline.stock_torch(call.request, call.environ, call.ui)
    call.ui.result(str(pipeline.bundle(call.request, stock, call.environ, call.ui)))
    return 0


def repack_command(call: Call) -> int:
    """Write the wheel; stdout: its path."""
    call.ui.result(str(pipeline.repack(call.request, call.ui)))
    return 0


def _show_audit(report: AuditReport, call: Call, *, as_json: bool) -> int:
    call.ui.result(report.to_json() if as_json else "\n".join(report.lines()))
    return FINDINGS if report.findings else 0


def wheel_command(call: Call) -> int:
    """Run all stages and the audit; stdout: the audit's report, whose first line names the wheel."""
    wheel = pipeline.build_wheel(call.request, call.environ, call.ui)
    return _show_audit(pipeline.audit_own(wheel, call.request, call.ui), call, as_json=False)


def audit_command(call: Call) -> int:
    """Audit a wheel, by its path or the one that was built for a backend; exit code 1 on any finding."""
    if call.asked is None:
        report = audit(call.arguments.wheel)
    else:
        wheel = call.asked.wheel or finished_wheel(call.asked.workspace, call.asked.backend)
        check_wheel(wheel, call.asked.workspace)
        report = pipeline.audit_own(wheel, call.asked, call.ui)
    return _show_audit(report, call, as_json=call.arguments.json)


def verify_command(call: Call) -> int:
    """Verify a wheel and write its report; stdout: the table row, or the report as JSON; exit code 1 on any problem."""
    workers = call.request.workers or min(len(os.sched_getaffinity(0)), MAX_WORKERS)
    request = replace(call.request, workers=workers)
    result = pipeline.verify(request, call.environ, call.ui)
    path = write_report(result, request.workspace)
    for problem in result.problems:
        call.ui.warning(problem)
    call.ui.notice(f"report: {path}")
    if call.arguments.json:
        call.ui.result(json.dumps(asdict(result), indent=2, sort_keys=True))
    else:
        call.ui.table(HEADER, [result.row()])
    return FINDINGS if result.problems else 0


def _counted(call: Call) -> list[Verification]:
    """Return the results that the table shows; one under another's name is left out, and named."""
    counted = []
    for path, result in read_reports(Workspace(backend="")).items():
        if path.name != result.file_name:
            call.ui.warning(f"{path} is not counted: {result.title} belongs in {result.file_name}; remove it")
        elif not result.pytest_arguments and (result.forged or not call.arguments.forged):
            counted.append(result)
    return counted


def report_command(call: Call) -> int:
    """Show the table of all verifications so far, but for partial ones; exit code 1 if any of them failed.

    With --forged, those of forged vendors alone: what hardware gave is neither shown nor judged.
    """
    results = _counted(call)
    if not results:
        kind = " of a forged vendor" if call.arguments.forged else ""
        raise NothingBundledError(f"no whole verification{kind} has been reported yet", stage="verify", backend="NAME")
    call.ui.table(HEADER, [result.row() for result in results])
    for result in results:
        differences = ", ".join(f"{name} {value:.3g}" for name, value in sorted(result.accuracy.items()))
        call.ui.result(f"{result.title}: torch {result.torch}, largest difference against the CPU: {differences}")
        for problem in result.problems:
            call.ui.result(f"{result.title}: {problem}")
    return FINDINGS if any(result.problems for result in results) else 0


def forge_command(call: Call) -> int:
    """Forge a vendor; stdout: where it is, as JSON."""
    request = replace(call.request, forged=True)
    stock = pipeline.stock_torch(request, call.environ, call.ui)
    made = pipeline.forge_vendor(request, stock, call.environ, call.ui)
    call.ui.result(json.dumps(asdict(made), indent=2, sort_keys=True, default=str))
    return 0


def clean_command(call: Call) -> int:
    """Remove build folders, unless a run works in them; stdout: what was removed."""
    workspace = call.request.workspace
    with ExitStack() as held:
        for lock in workspace.locks():
            held.enter_context(exclusive(lock, backend=workspace.backend, doing=f"working in {lock.parent}"))
        for folder in workspace.clean():
            call.ui.result(str(folder))
    return 0


def docs_command(call: Call) -> int:
    """Write the generated parts of docs/ anew; stdout: the files that changed."""
    from bundle.docs import write_generated  # noqa: PLC0415 - only this command needs it

    for path in write_generated(Workspace(backend="").repository):
        call.ui.result(str(path))
    return 0
