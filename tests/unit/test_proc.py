"""Running programs: what they said is kept, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bundle.errors import FULL_DISK, PassedOnError, RefusedError, ToolError
from bundle.locks import exclusive
from bundle.proc import run

REPOSITORY = Path(__file__).parents[2]


def test_output_must_be_kept_in_order_and_handed_on_by_line():
    seen: list[str] = []
    done = run([sys.executable, "-c", "print('one'); print('two')"], on_line=seen.append)
    assert done.stdout == "one\ntwo\n"
    assert seen == ["one", "two"]


def test_failure_must_quote_the_program():
    with pytest.raises(ToolError) as caught:
        run([sys.executable, "-c", "import sys; print('the cause'); sys.exit(3)"])
    assert "exited with 3" in str(caught.value)
    assert str(caught.value).endswith("\n  the cause")
    assert caught.value.exit_code == 7


REFUSES = """
import sys
from bundle.errors import RefusedError
from bundle.guard import guarded
from bundle.ui import Reporter
def work():
    ui.notice("progress")
    raise RefusedError("metax: no\\n  for two reasons", hint="do this")
ui = Reporter(colour=len(sys.argv) > 1)
sys.exit(guarded(work, ui, show_traceback=len(sys.argv) > 2))
"""


@pytest.mark.parametrize("options", [[], ["colour"], ["colour", "traceback"]], ids="-".join)
def test_refusal_of_a_program_of_ours_must_be_passed_on_alone(options):
    with pytest.raises(PassedOnError) as caught:
        run([sys.executable, "-c", REFUSES, *options], cwd=REPOSITORY)
    assert (str(caught.value), caught.value.hint) == ("metax: no\n  for two reasons", "do this")
    assert caught.value.exit_code == 9


@pytest.mark.parametrize(
    "said",
    [
        pytest.param("bundle: error: metax: no\nbundle: hint: do this\nand then died", id="not-at-the-end"),
        pytest.param("bundle: hint: do this", id="no-error"),
        pytest.param("says bundle: error: metax: no\nbundle: hint: do this", id="quoted"),
        pytest.param("", id="nothing"),
    ],
)
def test_what_is_no_refusal_must_be_quoted(said):
    with pytest.raises(ToolError, match="exited with 9") as caught:
        run([sys.executable, "-c", f"print({said!r}); raise SystemExit(9)"])
    assert (type(caught.value), caught.value.exit_code) == (ToolError, 7)


def test_full_disk_that_a_program_reports_must_give_the_hint_however_much_follows():
    with pytest.raises(ToolError) as caught:
        run([sys.executable, "-c", "print('No', 'space left on device'); print('y\\n' * 100); raise SystemExit(1)"])
    assert "space left on device\n" not in str(caught.value)
    assert caught.value.hint == FULL_DISK


def test_signal_must_be_named():
    with pytest.raises(ToolError, match="was killed by SIGABRT"):
        run([sys.executable, "-c", "import os; os.abort()"])


def test_missing_program_must_be_named():
    with pytest.raises(ToolError, match="no-such-program could not be started: No such file or directory"):
        run(["no-such-program"])


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, id="SIGINT"), pytest.param(signal.SIGTERM, id="SIGTERM")]
)
def test_stopped_tool_must_leave_no_children(tmp_path, number):
    pids = tmp_path / "pids"
    shell = f"sleep 60 & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait"
    program = f"""
import sys
from bundle import cli, commands
from bundle.proc import run
def sleeper(call):
    run(["sh", "-c", {shell!r}])
cli.COMMANDS["report"] = (sleeper, "sleep", ())
sys.exit(cli.main(["report"]))
"""
    tool = subprocess.Popen([sys.executable, "-c", program], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
    while not pids.exists():
        assert tool.poll() is None, tool.communicate()[1]
        time.sleep(0.01)
    os.kill(tool.pid, number)
    _, said = tool.communicate(timeout=120)
    assert tool.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    assert "run the same command again" in said
    # The kernel ends a killed process when it next gets to it, which on a busy machine is a moment later.
    deadline = time.monotonic() + 60
    left = [int(pid) for pid in pids.read_text().split()]
    while any(map(_alive, left)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(_alive, left))


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, id="SIGINT"), pytest.param(signal.SIGTERM, id="SIGTERM")]
)
def test_signal_while_a_program_is_being_started_must_stop_that_program(tmp_path, number):
    pid = tmp_path / "pid"
    # The signal comes after the fork, before the caller knows of the child: the hook runs at exactly that point.
    program = f"""
import os, pathlib, signal, subprocess, sys
from bundle.proc import run
def ended(number, frame):
    raise SystemExit(7)
signal.signal({int(number)}, ended)
fork_exec = subprocess._fork_exec if hasattr(subprocess, "_fork_exec") else subprocess._posixsubprocess.fork_exec
def started(*args):
    child = fork_exec(*args)
    pathlib.Path({str(pid)!r}).write_text(str(child))
    os.kill(os.getpid(), {int(number)})
    return child
if hasattr(subprocess, "_fork_exec"):
    subprocess._fork_exec = started
else:
    subprocess._posixsubprocess = type("Stub", (), {{"fork_exec": staticmethod(started)}})
run(["sleep", "600"])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    assert not _alive(int(pid.read_text()))


HOLD = """
import os, sys, time
from pathlib import Path
from bundle.locks import exclusive
from bundle.proc import run
with exclusive(Path(sys.argv[1]), backend="dcu", doing="working"):
    run([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"], on_line=lambda _: print(
        os.getpid(), flush=True))
"""


def test_what_a_killed_run_left_must_keep_the_next_one_out(tmp_path):
    lock = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, lock], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as tool:
        assert tool.stdout is not None
        tool.stdout.readline()
        (child,) = Path(f"/proc/{tool.pid}/task/{tool.pid}/children").read_text().split()
        with (
            pytest.raises(RefusedError, match="dcu: another run is waiting"),
            exclusive(lock, backend="dcu", doing="waiting"),
        ):
            pass
        tool.kill()
    try:
        with (
            pytest.raises(RefusedError, match="or a program that a killed run left"),
            exclusive(lock, backend="dcu", doing="waiting"),
        ):
            pass
    finally:
        os.kill(int(child), signal.SIGKILL)
    deadline = time.monotonic() + 60
    while _alive(int(child)) and time.monotonic() < deadline:
        time.sleep(0.01)
    with exclusive(lock, backend="dcu", doing="waiting"):
        pass


def test_program_of_a_thread_must_end_with_the_group_of_its_starter(tmp_path):
    pid = tmp_path / "pid"
    shell = f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600"
    program = f"""
from concurrent.futures import ThreadPoolExecutor
from bundle.proc import run
with ThreadPoolExecutor() as pool:
    list(pool.map(run, [["sh", "-c", {shell!r}]]))
"""
    # As `run` starts a program, and stops it.
    with subprocess.Popen([sys.executable, "-c", program], cwd=REPOSITORY, start_new_session=True) as tool:
        while not pid.exists():
            assert tool.poll() is None
            time.sleep(0.01)
        os.killpg(tool.pid, signal.SIGTERM)
    left, deadline = int(pid.read_text()), time.monotonic() + 60
    while _alive(left) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _alive(left)


def test_program_of_a_thread_must_be_stopped_alone_when_its_reader_fails(tmp_path):
    pid = tmp_path / "pid"

    def refuse(_):
        raise RefusedError("enough")

    with ThreadPoolExecutor() as pool:
        started = pool.submit(run, ["sh", "-c", f"echo $$ > {pid}; echo said; exec sleep 600"], on_line=refuse)
        with pytest.raises(RefusedError, match="enough"):
            started.result(timeout=120)
    assert not _alive(int(pid.read_text()))
