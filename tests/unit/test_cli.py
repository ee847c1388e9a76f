"""The command line: what is refused with which exit code, and what goes to stdout."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bundle import cli
from bundle.backends import BACKENDS, DCU
from bundle.cli import main
from bundle.errors import RefusedError, about
from tests.support.wheels import WheelSpec

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def command(monkeypatch):
    """Return a function that runs `report` with another body: the way from a body to its exit code is under test."""

    def start(body, *words):
        monkeypatch.setitem(cli.COMMANDS, "report", (body, "a body of the test", ()))
        return main(["report", *words])

    return start


def test_an_audit_without_findings_must_give_zero_and_json_alone_on_stdout(tmp_path, capsys):
    path = WheelSpec(backend=DCU).write(tmp_path)
    assert main(["audit", str(path), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["findings"] == []
    assert said.err == ""


def test_findings_must_give_one(tmp_path, capsys):
    assert main(["audit", str(WheelSpec(backend=DCU).write_thin(tmp_path))]) == 1
    assert "B102" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "found"),
    [(["--backend", "mtax"], "unknown backend 'mtax'"), (["--backend", ""], "no --backend"), ([], "no --backend")],
    ids=["unknown", "empty", "absent"],
)
def test_a_backend_that_is_none_of_the_list_must_give_two_and_the_list(words, found, capsys):
    assert main(["plan", *words]) == 2
    said = capsys.readouterr().err
    assert f"bundle: error: {found}; there are\n" in said
    assert all(f"  {name}" in said for name in BACKENDS)


TASKS = ("compile", "bundle", "repack", "wheel", "plan", "audit", "forge", "verify", "clean")


def inv(*words):
    command = [sys.executable, "-m", "invoke", *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("task", TASKS)
def test_a_task_without_a_backend_must_give_the_same_two(task):
    done = inv(task)
    assert done.returncode == 2, done.stderr
    missing = "neither a wheel nor --backend" if task == "audit" else "no --backend"
    assert f"bundle: error: {missing}; there are\n" in done.stderr


@pytest.mark.parametrize(
    ("words", "form"),
    [
        pytest.param(["audit", "dist/x.whl"], "--wheel dist/x.whl", id="wheel"),
        pytest.param(["audit", "--forged", "x.whl", "--backend", "dcu"], "--wheel x.whl", id="wheel-after-flag"),
        pytest.param(["clean", "--backend", "nothing", "plan", "dcu"], "--backend dcu", id="backend"),
    ],
)
def test_a_word_alone_must_give_two_and_the_option_to_write(words, form):
    done = inv(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"inv: {form.split()[1]!r} stands alone; write {form}\n"


@pytest.mark.parametrize("form", [["--wheel", "{}"], ["--wheel={}"], ["-w", "{}"]], ids=["words", "joined", "short"])
def test_a_wheel_by_its_option_must_be_audited(tmp_path, form):
    path = WheelSpec(backend=DCU).write(tmp_path)
    done = inv("audit", *(word.format(path) for word in form))
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"wheel: {path.name}"), done.stderr


def test_an_audit_by_backend_must_read_the_wheel_that_was_built_for_it(checkout):
    run, dist = checkout
    (dist / "forged").mkdir(parents=True)
    wheel = WheelSpec(backend=DCU, label="dtk.forged").write(dist / "forged")
    done = run("audit", "--backend", "dcu", "--forged")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"wheel: {wheel.name}"), done.stderr
    shutil.copy(wheel, wheel.with_name(wheel.name.replace("torch_fl-0", "torch_fl-1")))
    done = run("audit", "--backend", "dcu", "--forged")
    assert done.returncode == 4
    assert "dcu: 2 wheels in" in done.stderr


def test_an_audit_by_backend_must_refuse_a_wheel_of_another(checkout):
    run, dist = checkout
    wheel = WheelSpec(backend=DCU).write(dist.parent)
    assert run("audit", str(wheel)).returncode == 0
    for backend, kind in (("metax", "forged"), ("dcu", "real")):
        done = run("audit", "--backend", backend, *(["--forged"] if kind == "forged" else []), str(wheel))
        assert done.returncode == 9
        assert f"is of backend dcu (forged vendor); expected {backend} ({kind} vendor)" in done.stderr


@pytest.mark.parametrize("options", [[], ["--forged"]], ids=["real", "forged"])
def test_the_next_step_must_be_about_the_same_kind_of_vendor(checkout, options):
    run, _ = checkout
    done = run("repack", "--backend", "metax", *options)
    assert done.returncode == 3
    assert f"hint: run `{' '.join(['inv compile --backend metax', *options])}` first\n" in done.stderr


def test_clean_must_spare_folders_that_a_run_works_in(checkout):
    run, dist = checkout
    lock = dist.parent / "build" / "dcu-forged" / ".bundle.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        done = run("clean", "--backend", "dcu")
        assert done.returncode == 9
        assert f"dcu: another run is working in {lock.parent}" in done.stderr
        assert lock.exists()
    assert run("clean", "--backend", "dcu").returncode == 0
    assert not lock.parent.exists()


@pytest.mark.parametrize("options", [[], ["--forged"]], ids=["real", "forged"])
def test_an_audit_of_a_backend_without_a_wheel_must_say_how_to_build_one(checkout, options):
    run, _ = checkout
    done = run("audit", "--backend", "dcu", *options)
    assert done.returncode == 4
    assert "dcu: 0 wheels in" in done.stderr
    assert f"hint: run `{' '.join(['inv wheel --backend dcu', *options])}` first" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([], id="no-command"),
        pytest.param(["weel", "--backend", "dcu"], id="unknown-command"),
        pytest.param(["wheel", "--backend", "dcu", "--core", "half"], id="unknown-core"),
    ],
)
def test_unusable_arguments_must_give_two(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "usage: bundle" in capsys.readouterr().err


def test_a_missing_file_must_give_four_and_a_damaged_one_eight(tmp_path, capsys):
    assert main(["audit", str(tmp_path / "gone.whl")]) == 4
    (tmp_path / "text.whl").write_text("no zip")
    assert main(["audit", str(tmp_path / "text.whl")]) == 8
    assert capsys.readouterr().err.count("bundle: hint: ") == 2


def test_a_refusal_must_end_with_error_and_hint_and_no_traceback(command, capsys):
    def refuse(_):
        raise RefusedError("dcu: no", hint="do this")

    assert command(refuse) == 9
    assert capsys.readouterr().err == "bundle: error: dcu: no\nbundle: hint: do this\n"
    assert command(refuse, "--traceback") == 9
    assert "Traceback (most recent call last):" in capsys.readouterr().err


def test_a_bug_must_give_seventy_with_its_traceback(command, capsys):
    assert command(lambda _: int("x")) == 70
    said = capsys.readouterr().err
    assert "ValueError: invalid literal for int()" in said
    assert said.splitlines()[-2] == "bundle: error: unexpected error, a bug in this tool"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
def test_a_signal_must_give_its_code_and_leave_the_handler_as_it_was(command, capsys, number, code):
    before = signal.getsignal(number)

    def stopped(_):
        os.kill(os.getpid(), number)
        signal.pause()

    assert command(stopped) == code
    assert "run the same command again" in capsys.readouterr().err
    assert signal.getsignal(number) is before


def test_options_must_win_over_variables(monkeypatch):
    monkeypatch.setenv("FLAGOS_WHEEL_LOCAL", "mine")
    seen = []

    def keep(call):
        seen.append(call.request)
        return 0

    monkeypatch.setitem(cli.COMMANDS, "repack", (keep, "keep", (cli._backend, cli._label)))
    assert main(["repack", "--backend", "dcu", "--forged"]) == 0
    assert main(["repack", "--backend", "dcu", "--label", "its"]) == 0
    assert main(["repack", "--backend", "dcu", "--label", ""]) == 0
    assert [request.version_label for request in seen] == ["mine.forged", "its", ""]


def test_a_folder_in_a_files_place_must_be_a_refusal(tmp_path, capsys):
    assert main(["audit", str(tmp_path)]) == 10
    assert capsys.readouterr().err.startswith(f"bundle: error: {tmp_path}: Is a directory\nbundle: hint: look at ")


def test_a_full_disk_must_be_a_refusal_that_names_no_bug(command, capsys, tmp_path):
    def write(_):
        with about(tmp_path / "dist/x.whl"), Path("/dev/full").open("w") as stream:
            stream.write("x")

    assert command(write) == 10
    said = capsys.readouterr().err
    assert said.startswith(f"bundle: error: {tmp_path}/dist/x.whl: No space left on device; free now: ")
    assert f" MB in {tmp_path}\nbundle: hint: make room " in said


def test_a_tree_that_cannot_be_copied_must_be_one_refusal(command, capsys, tmp_path):
    for name in "abc":
        (tmp_path / "from" / name).mkdir(parents=True)
        (tmp_path / "from" / name / "gone").symlink_to("nowhere")

    assert command(lambda _: shutil.copytree(tmp_path / "from", tmp_path / "to")) == 10
    said = capsys.readouterr().err
    assert said.startswith(f"bundle: error: {tmp_path}/from/")
    assert "/gone: No such file or directory, and so for 2 more\nbundle: hint: look at the path" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("stream", ["", "2"], ids=["stdout", "both"])
def test_output_into_a_full_disk_must_still_give_ten(tmp_path, stream):
    path = WheelSpec(backend=DCU).write(tmp_path)
    script = f'"$0" -m bundle audit "$1" > /dev/full {"2>&1" if stream else ""}'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, path], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 10, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["plan", "--vendor-torch", ""], id="vendor-torch"),
        pytest.param(["plan", "--sdk-root", ""], id="sdk-root"),
        pytest.param(["verify", "--wheel="], id="wheel"),
        pytest.param(["verify", "--workers", "-1"], id="workers"),
    ],
)
def test_a_value_that_means_nothing_must_be_refused_before_it_is_used(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*words, "--backend", "cuda"])
    assert caught.value.code == 2
    assert "expected" in capsys.readouterr().err
