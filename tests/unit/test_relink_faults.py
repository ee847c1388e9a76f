"""Relink where the system is against it: full disk, read-only tree, no hard links, others at work."""

from __future__ import annotations

import fcntl
import mmap
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.soak.kills import differing, snapshot
from tests.support.fake_torch import complete_site
from tests.support.namespaces import in_tmpfs
from tests.support.relinked import backup, condition, core_of, do_relink, do_restore
from torch_fl_boot.relink import Action, Condition, grace
from torch_fl_boot.relink.errors import LockedError
from torch_fl_boot.relink.files import describe
from torch_fl_boot.relink.lock import locked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FULL_DISK = """
from tests.soak.kills import differing, snapshot
from tests.support.fake_torch import complete_site
from tests.support.relinked import do_relink, do_restore
from torch_fl_boot.relink import Action
from torch_fl_boot.relink.errors import ChangeError
site = complete_site(Path.cwd())
before, refusals, free = snapshot(site.root), [], 0
while True:
    ballast = Path.cwd() / "ballast"
    with ballast.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(4096))
        except OSError:
            pass
        os.truncate(ballast, ballast.stat().st_size - 4096 * free)
    try:
        outcome = do_relink(site)
    except ChangeError as err:
        refusals.append(str(err))
        assert differing(before, snapshot(site.root)) == [], free
        free += 1
        continue
    break
with ballast.open("ab", buffering=0) as stream:
    try:
        while True:
            stream.write(bytes(4096))
    except OSError:
        pass
assert do_restore(site).action is Action.RESTORED
assert differing(before, snapshot(site.root)) == []
print(json.dumps(refusals))
"""

READ_ONLY = """
from tests.soak.kills import differing, snapshot
from tests.support.fake_torch import complete_site
from tests.support.relinked import core_of, do_relink
from torch_fl_boot.relink import Action
from torch_fl_boot.relink.errors import ChangeError
def remount(how):
    subprocess.run(["mount", "-o", f"remount,{how}", str(Path.cwd())], check=True)
site = complete_site(Path.cwd())
before = snapshot(site.root)
remount("ro")
try:
    do_relink(site)
except ChangeError as err:
    said = str(err)
assert differing(before, snapshot(site.root)) == []
assert core_of(site) == {"torch"}
remount("rw")
do_relink(site)
remount("ro")
assert do_relink(site).action is Action.NOTHING
done = site.run("import torch_fl; print(torch_fl.bundle().strategy)", environ={"FLAGOS_CORE": "relink"})
assert (done.stdout, done.stderr) == ("relink\\n", "")
print(json.dumps([said]))
"""


def test_full_disk_must_change_nothing_however_little_is_missing(tmp_path):
    refusals = in_tmpfs(tmp_path, FULL_DISK, size="3m")
    assert len(refusals) > 10
    assert all("No space left on device" in said and "; nothing was changed\nhint: " in said for said in refusals)


def test_read_only_tree_must_be_refused_and_a_relinked_one_must_work(tmp_path):
    (said,) = in_tmpfs(tmp_path, READ_ONLY, size="3m")
    assert "could not be changed (Read-only file system" in said
    assert "; nothing was changed\nhint: run it as a user who may write there" in said


def test_original_without_room_for_another_hard_link_must_be_copied(tmp_path):
    site = complete_site(tmp_path)
    library = site.torch_lib / "libc10.so"
    (tmp_path / "links").mkdir()
    while library.stat().st_nlink < os.pathconf(library, "PC_LINK_MAX"):
        os.link(library, tmp_path / f"links/{library.stat().st_nlink}")
    try:
        os.link(library, tmp_path / "one-more")
    except OSError:
        pass
    else:
        pytest.skip("this file system does not say how many hard links it allows")
    before = describe(library)
    do_relink(site)
    assert core_of(site) == {"torch_fl"}
    assert (backup(site) / "libc10.so").stat().st_nlink == 1
    do_restore(site)
    assert describe(library) == before


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of tmp_path until it is killed."""
    program = f"import fcntl, os, sys; d = os.open({str(tmp_path)!r}, os.O_RDONLY); fcntl.flock(d, fcntl.LOCK_EX)\n"
    program += "print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_waiting_must_end_and_name_the_holder(tmp_path, holder):
    heard: list[str] = []
    with pytest.raises(LockedError) as caught, locked(tmp_path, notify=heard.append, patience=2.5):
        pass
    assert f"waited 2 s for process {holder.pid} (" in str(caught.value)
    assert [text.partition(" (")[0] for text in heard] == [f"waiting for process {holder.pid}"]


def test_lock_must_end_with_its_holder(tmp_path, holder):
    holder.kill()
    with locked(tmp_path, notify=pytest.fail):
        descriptor = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


@pytest.mark.parametrize("is_link", [False, True], ids=["file", "link-into-a-cache"])
def test_process_in_the_middle_of_loading_must_find_the_stock_siblings(tmp_path, monkeypatch, is_link):
    """It has libtorch_python and nothing else: what the loader would find now must be of the same torch."""
    site = complete_site(tmp_path)
    if is_link:
        cached = (site.torch_lib / "libtorch_python.so").rename(tmp_path / "libtorch_python.so")
        (site.torch_lib / "libtorch_python.so").symlink_to(cached)
    monkeypatch.setattr(grace, "PATIENCE", 0.5)
    child = os.fork()
    if child == 0:
        with (site.torch_lib / "libtorch_python.so").open("rb") as stream:
            kept = mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)
        while not kept.closed:
            time.sleep(60)
    time.sleep(0.5)
    outcome = do_relink(site)
    siblings = [site.torch_lib / name for name in ("libtorch.so", "libshm.so", "libtorch_cpu.so", "libc10.so")]
    try:
        assert outcome.pending == (child,)
        assert not any(path.is_symlink() for path in siblings)
        assert core_of(site) == {"torch_fl"}
        assert condition(site) is Condition.UNFINISHED
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    outcome = do_relink(site)
    assert (outcome.action, outcome.pending, condition(site)) == (Action.RELINKED, (), Condition.RELINKED)
    assert all(path.is_symlink() for path in siblings)


def test_import_must_relink_when_asked_and_finish_what_was_killed(tmp_path):
    site = complete_site(tmp_path)
    before = snapshot(site.root)
    done = site.run("import torch_fl; print(torch_fl.bundle().strategy)", environ={"FLAGOS_CORE": "relink"})
    assert (done.stdout, done.stderr, condition(site)) == ("relink\n", "", Condition.RELINKED)
    (backup(site) / "journal.relinked.json").rename(backup(site) / "journal.restoring.json")
    done = site.run("import torch_fl; print(torch_fl.bundle().strategy)")
    assert (done.stdout, done.stderr) == ("preload\n", "")
    assert differing(before, snapshot(site.root)) == []


def test_import_after_torch_must_not_relink(tmp_path):
    site = complete_site(tmp_path)
    done = site.run("import torch, torch_fl", environ={"FLAGOS_CORE": "relink"})
    assert "torch_fl must be imported before torch" in done.stderr
    assert condition(site) is Condition.STOCK


def test_plain_build_must_refuse_to_relink(tmp_path):
    site = complete_site(tmp_path)
    for path in site.bundle.iterdir():
        path.unlink()
    site.bundle.rmdir()
    (site.root / "torch_fl/_bundle.json").unlink()
    done = site.run("import torch_fl", environ={"FLAGOS_CORE": "relink"})
    assert "FLAGOS_CORE='relink' is not supported; this version of torch_fl knows: preload\n" in done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "torch_fl_boot.relink", "relink"],
        cwd=site.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert f"torch_fl: error: the torch_fl in {site.root}/torch_fl has no bundle to relink to" in done.stderr


def test_commands_must_say_what_they_did_where_torch_fl_does_not_start(tmp_path):
    site = complete_site(tmp_path)

    def run(command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "torch_fl_boot.relink", command],
            cwd=site.root, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.removeprefix(f"{site.torch_lib}: ")

    assert run("status").startswith("state      preload, hook absent\n")
    assert run("relink").startswith("relinked: libc10.so, ")
    assert run("relink") == "nothing to do: already relinked\n"
    assert run("status").startswith("state      relinked, hook absent\n")
    assert run("restore").startswith("restored: libc10.so, ")
    assert run("restore") == "nothing to do: not relinked\n"
