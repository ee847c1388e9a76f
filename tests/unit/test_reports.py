"""Reports of verifications: their names, what the table shows of them, and what its exit code says."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from bundle.reports import HEADER, Verification, write_report
from bundle.workspace import Workspace

RESULT = Verification(
    backend="dcu",
    forged=True,
    wheel="torch_fl.whl",
    wheel_bytes=2_500_000,
    bundle_files=28,
    devices=2,
    torch="2.10.0+cpu",
    strategy="preload",
    collected=4,
    passed=3,
    failed=0,
    known=1,
    aborted=0,
    skipped=0,
    accuracy={"mm": 0.0},
    problems=(),
)
REAL = replace(RESULT, forged=False)


def workspace(root):
    return Workspace(backend="dcu", repository=root)


def test_the_report_must_hold_what_the_row_shows(tmp_path):
    path = write_report(RESULT, workspace(tmp_path))
    assert json.loads(path.read_text()) == {**asdict(RESULT), "problems": [], "pytest_arguments": []}
    assert list(path.parent.iterdir()) == [path]
    assert dict(zip(HEADER, RESULT.row(), strict=True)) == {
        "backend": "dcu (forged)",
        "wheel": "torch_fl.whl",
        "MB": "2.5",
        "files": "28",
        "devices": "2",
        "passed": "3",
        "failed": "0",
        "known": "1",
        "aborted": "0",
        "skipped": "0",
        "operators": "-",
        "verdict": "ok",
    }
    assert replace(RESULT, problems=("x",)).row()[-1] == "failed"


@pytest.mark.parametrize(
    ("result", "name", "title"),
    [
        pytest.param(REAL, "verify-dcu.json", "dcu", id="real"),
        pytest.param(replace(REAL, strategy="relink"), "verify-dcu-relink.json", "dcu (relink)", id="relink"),
        pytest.param(RESULT, "verify-dcu-forged.json", "dcu (forged)", id="forged"),
        pytest.param(
            replace(RESULT, strategy="relink", suite="core"),
            "verify-dcu-forged-relink.json",
            "dcu (forged, relink, core)",
            id="forged-relink",
        ),
        pytest.param(
            replace(RESULT, suite="core", pytest_arguments=("-k", "one")),
            "verify-dcu-forged-partial.json",
            "dcu (forged, partial)",
            id="forged-partial",
        ),
    ],
)
def test_results_of_another_kind_must_have_reports_of_their_own(tmp_path, result, name, title):
    path = write_report(result, workspace(tmp_path))
    assert (path, result.title) == (tmp_path / "reports" / name, title)


def test_a_forged_verification_must_leave_the_report_of_real_hardware(tmp_path):
    kept = write_report(REAL, workspace(tmp_path))
    before = kept.read_bytes()
    write_report(replace(RESULT, problems=("x",)), workspace(tmp_path))
    assert kept.read_bytes() == before


def shown(out):
    """Return the first column of a table that was printed, without its heading."""
    table = out[: out.index(": torch ")].splitlines()[:-1]
    return [line.split("  ")[0].strip() for line in table if line.startswith("dcu")]


@pytest.mark.parametrize(
    ("failed", "options", "rows", "code"),
    [
        pytest.param((), [], ["dcu (forged)", "dcu"], 0, id="all"),
        pytest.param((REAL,), [], ["dcu (forged)", "dcu"], 1, id="all-with-a-failure"),
        pytest.param((REAL,), ["--forged"], ["dcu (forged)"], 0, id="failure-of-hardware-aside"),
        pytest.param((RESULT,), ["--forged"], ["dcu (forged)"], 1, id="forged-failure"),
    ],
)
def test_the_table_must_show_every_kind_and_judge_what_it_shows(checkout, failed, options, rows, code):
    run, dist = checkout
    for result in (REAL, RESULT):
        write_report(replace(result, problems=("broken",) if result in failed else ()), workspace(dist.parent))
    write_report(replace(REAL, pytest_arguments=("-k", "one"), problems=("x",)), workspace(dist.parent))
    done = run("report", *options)
    assert (done.returncode, shown(done.stdout)) == (code, rows), done.stderr
    assert ("dcu: broken" in done.stdout.splitlines()) == (REAL in failed and not options)


def test_a_report_under_the_name_of_another_must_be_named_and_not_counted(checkout):
    run, dist = checkout
    path = write_report(RESULT, workspace(dist.parent))
    stray = path.rename(path.with_name("verify-dcu.json"))
    done = run("report")
    assert done.returncode == 3
    assert f"{stray} is not counted: dcu (forged) belongs in verify-dcu-forged.json; remove it" in done.stderr


OTHER_SCHEMA = json.dumps({**asdict(REAL), "schema": 2})


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"backend": "dcu"}', '{"backend": "dcu", "schema": 1}', OTHER_SCHEMA, "[" * 100_000],
    ids=["empty", "no-object", "no-schema", "backend-alone", "no-counts", "other-schema", "without-end"],
)
def test_a_damaged_report_must_be_named(checkout, text):
    run, dist = checkout
    (dist.parent / "reports").mkdir()
    (dist.parent / "reports" / "verify-dcu.json").write_text(text)
    done = run("report")
    assert done.returncode == 8
    assert f"{dist.parent}/reports/verify-dcu.json: not a report of a verification: " in done.stderr


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        pytest.param("accuracy", [], "accuracy is [], expected an object", id="accuracy"),
        pytest.param("accuracy", {"mm": "x"}, 'accuracy.mm is "x", expected a fraction', id="difference"),
        pytest.param("wheel_bytes", None, "wheel_bytes is null, expected a whole number", id="size"),
        pytest.param("backend", 5, "backend is 5, expected text", id="backend"),
        pytest.param("problems", "abc", 'problems is "abc", expected an array', id="problems"),
        pytest.param("forged", "no", 'forged is "no", expected true or false', id="forged"),
        pytest.param("operators", {"registered": 1}, "operators.executed is missing", id="operators"),
        pytest.param("remark", "x", "remark is unknown", id="unknown"),
    ],
)
def test_a_report_with_a_value_of_another_kind_must_be_named(checkout, field, value, words):
    run, dist = checkout
    path = write_report(RESULT, workspace(dist.parent))
    path.write_text(json.dumps({**asdict(RESULT), field: value}))
    done = run("report")
    assert done.returncode == 8, done.stderr
    assert f"{path}: not a report of a verification: {words}" in done.stderr


def test_a_report_of_before_the_later_fields_must_be_counted(checkout):
    run, dist = checkout
    path = write_report(RESULT, workspace(dist.parent))
    later = {"operators", "suite", "pytest_arguments", "schema"}
    path.write_text(json.dumps({name: value for name, value in asdict(RESULT).items() if name not in later}))
    done = run("report")
    assert (done.returncode, shown(done.stdout)) == (0, ["dcu (forged)"]), done.stderr


def test_a_table_of_nothing_must_say_what_to_run(checkout):
    run, _ = checkout
    for options in ([], ["--forged"]):
        done = run("report", *options)
        assert done.returncode == 3
        assert f"hint: run `{' '.join(['inv verify --backend NAME', *options])}` first\n" in done.stderr
