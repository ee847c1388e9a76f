"""Temporary folders of killed runs: swept away by the next run, and only those."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from bundle.scratch import scratch_folder, temporary_variables

REPOSITORY = Path(__file__).parents[2]
PREFIX = "torch_fl-verify-dcu-"
# Makes a folder, starts a program that outlives it if asked to, says so, and waits to be killed.
OWNER = """
import sys, time
from bundle.proc import run
from bundle.scratch import scratch_folder
with scratch_folder(sys.argv[1]) as folder:
    (folder / "env").mkdir()
    (folder / "env" / "large").write_bytes(bytes(1000))
    print(folder, flush=True)
    if len(sys.argv) > 2:
        run([sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"],
            on_line=lambda line: print(line, flush=True))
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@contextmanager
def running(*arguments):
    """Start an owner, and kill it at the end, whatever the test found."""
    command = [sys.executable, "-c", OWNER, PREFIX, *arguments]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as owner:
        try:
            yield owner
        finally:
            owner.kill()


def sweep():
    """Make a folder of the same prefix, which sweeps, and return the others that are there meanwhile."""
    with scratch_folder(PREFIX) as folder:
        return {path.name for path in folder.parent.iterdir()} - {folder.name}


def test_folder_must_be_gone_at_the_end(temporary):
    with scratch_folder(PREFIX) as folder:
        assert folder.name.startswith(PREFIX)
        (folder / "x").mkdir()
    assert list(temporary.iterdir()) == []


# Says what is still in the folder whose lock is removed: in its own, at the end, or in one that it finds.
REMOVER = """
import os, sys
from pathlib import Path
from bundle.scratch import scratch_folder
def say(event, arguments):
    if event == "os.remove" and Path(os.fsdecode(arguments[0])).name == ".owner" and found.is_dir():
        print(*sorted({path.name for path in found.iterdir()}), flush=True)
if len(sys.argv) > 2:
    found = Path(sys.argv[2])
    sys.addaudithook(say)
with scratch_folder(sys.argv[1]) as folder:
    if len(sys.argv) == 2:
        found = folder
        for number in range(50):
            (found / f"env{number}").mkdir()
            (found / f"file{number}").touch()
        sys.addaudithook(say)
"""


def test_lock_must_be_removed_last_so_that_a_killed_removal_is_finished_by_the_next_run(temporary):
    def removed(*arguments):
        command = [sys.executable, "-c", REMOVER, PREFIX, *arguments]
        done = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.splitlines()

    assert removed() == [".owner"]
    left = temporary / f"{PREFIX}left"
    left.mkdir()
    for name in (".owner", *(f"file{number}" for number in range(50))):
        (left / name).touch()
    assert removed(str(left)) == [".owner"]
    assert list(temporary.iterdir()) == []


def test_folder_of_a_killed_run_must_go_with_the_next_run():
    with running() as owner:
        folder = Path(owner.stdout.readline().strip())
        assert sweep() == {folder.name}
        assert (folder / "env" / "large").is_file()
    assert (folder / "env" / "large").is_file()
    assert sweep() == set()


def test_folder_of_a_killed_run_must_stay_while_a_program_of_it_goes_on():
    with running("child") as owner:
        folder, child = Path(owner.stdout.readline().strip()), int(owner.stdout.readline())
        owner.kill()
        owner.wait()
        try:
            assert sweep() == {folder.name}
        finally:
            os.kill(child, signal.SIGKILL)
    # The kernel drops the lock when it next gets to the killed process.
    deadline = time.monotonic() + 60
    while sweep() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sweep() == set()


def test_what_is_not_a_folder_of_a_run_must_stay(temporary):
    (temporary / f"{PREFIX}empty").mkdir()
    (temporary / f"{PREFIX}file").touch()
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / ".owner").touch()
    (temporary / f"{PREFIX}link").symlink_to("elsewhere")
    (temporary / "torch_fl-verify-dcuother").mkdir()
    before = {path.name for path in temporary.iterdir()}
    assert sweep() == before
    assert (temporary / "elsewhere" / ".owner").exists()


def test_file_system_without_locks_must_do_and_live_folders_there_must_stay(temporary, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with scratch_folder(PREFIX) as folder:
        assert sweep() == {folder.name}
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("length", [75, 76], ids=["fits", "too-long"])
def test_folder_for_temporary_files_must_have_room_for_the_name_of_a_socket(length):
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        folder = Path(base, "x" * (length - len(base) - 1))
        (folder / "pymp-12345678").mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as listener:
            try:
                listener.bind(f"{folder}/pymp-12345678/listener-12345678")
                expected = {"TMPDIR": str(folder)}
            except OSError:
                expected = {}
        assert (bool(expected), temporary_variables(folder)) == (length == 75, expected)
