"""Relink and restore of a site-packages of tiny libraries, by the functions that import and commands call."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from tests.soak.kills import differing, snapshot
from tests.soak.monitor import CORE
from tests.support.fake_torch import CORE as CORE_LIBRARIES
from tests.support.fake_torch import DEVICE, NVRTC, FakeSite, complete_site
from tests.support.relinked import backup, condition, core_of, do_relink, do_restore, renew
from torch_fl_boot.relink import Action, Condition
from torch_fl_boot.relink.errors import JournalError, OriginalLostError, OtherBackendError


def test_process_without_the_plugin_must_run_on_the_bundle(tmp_path):
    site = complete_site(tmp_path)
    assert core_of(site) == {"torch"}
    outcome = do_relink(site)
    assert (outcome.action, condition(site)) == (Action.RELINKED, Condition.RELINKED)
    assert set(outcome.names) >= {*CORE, *DEVICE, *NVRTC}
    assert core_of(site) == {"torch_fl"}


def test_restore_must_give_everything_back(tmp_path):
    site = complete_site(tmp_path)
    before = snapshot(site.root)
    inodes = {path.name: path.stat().st_ino for path in site.torch_lib.iterdir()}
    do_relink(site)
    assert differing(before, snapshot(site.root))
    assert do_restore(site).action is Action.RESTORED
    assert differing(before, snapshot(site.root)) == []
    assert {path.name: path.stat().st_ino for path in site.torch_lib.iterdir()} == inodes
    assert core_of(site) == {"torch"}


def test_second_relink_and_second_restore_must_do_nothing(tmp_path):
    site = complete_site(tmp_path)
    do_relink(site)
    before = snapshot(site.root)
    assert do_relink(site).action is Action.NOTHING
    assert differing(before, snapshot(site.root)) == []
    do_restore(site)
    assert do_restore(site).action is Action.NOTHING


def test_stock_core_must_get_the_extras_and_keep_its_own(tmp_path):
    site = complete_site(tmp_path, core="stock")
    before = snapshot(site.root)
    assert set(do_relink(site).names) == {*DEVICE, *NVRTC}
    assert core_of(site) == {"torch"}
    do_restore(site)
    assert differing(before, snapshot(site.root)) == []


def test_links_must_be_relative_so_that_the_environment_can_be_moved(tmp_path):
    site = complete_site(tmp_path)
    before = snapshot(site.root)
    do_relink(site)
    moved = FakeSite(root=site.root.rename(tmp_path / "moved"))
    assert core_of(moved) == {"torch_fl"}
    do_restore(moved)
    assert differing(before, snapshot(moved.root)) == []


@pytest.mark.parametrize("kind", ["hard", "symbolic"])
def test_cache_that_the_installer_linked_from_must_stay_untouched(tmp_path, kind):
    site = complete_site(tmp_path)
    cache = tmp_path / "cache"
    shutil.move(site.torch_lib, cache)
    site.torch_lib.mkdir()
    for path in cache.iterdir():
        (os.link if kind == "hard" else os.symlink)(path, site.torch_lib / path.name)
    before, cached = snapshot(site.root), {path.name: (path.read_bytes(), path.stat()) for path in cache.iterdir()}
    do_relink(site)
    assert core_of(site) == {"torch_fl"}
    do_restore(site)
    assert differing(before, snapshot(site.root)) == []
    for path in cache.iterdir():
        data, status = cached[path.name]
        assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode, path.stat().st_nlink) == (
            data, status.st_mtime_ns, status.st_mode, status.st_nlink
        )  # fmt: skip


def test_modes_must_let_other_users_import_whatever_the_umask(tmp_path):
    site = complete_site(tmp_path)
    before = os.umask(0o077)
    try:
        do_relink(site)
    finally:
        os.umask(before)
    assert backup(site).stat().st_mode == site.torch_lib.stat().st_mode
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in backup(site).iterdir())
    assert (site.root / "torch_fl_relinked.pth").stat().st_mode & 0o777 == 0o644


def test_wheel_of_another_backend_must_be_refused_with_the_restore_command(tmp_path):
    site = complete_site(tmp_path)
    do_relink(site)
    before = snapshot(site.root)
    for name in ("_bundle.json", "_build.json"):
        record = json.loads((site.root / "torch_fl" / name).read_text())
        (site.root / "torch_fl" / name).write_text(json.dumps({**record, "backend": "other"}))
    with pytest.raises(OtherBackendError) as caught:
        do_relink(site)
    assert str(caught.value) == (
        f"{site.torch_lib} is relinked to the bundle of backend fake; this wheel is of backend other\n"
        f"hint: python -m torch_fl restore, or without torch_fl: python {backup(site)}/restore.pyz"
    )
    assert differing(before, snapshot(site.root)) == []


def test_wheel_whose_list_changed_must_lose_no_original(tmp_path):
    site = complete_site(tmp_path)
    before = snapshot(site.root)
    do_relink(site)
    shutil.rmtree(site.bundle)
    core = {name: needed for name, needed in CORE_LIBRARIES.items() if name != "libtorch_global_deps.so"}
    site.write_bundle({**core, "libc10_cuda.so": ("libc10.so",), "libnew_device.so": ("libc10.so",)})
    assert do_relink(site).action is Action.RELINKED
    assert core_of(site) == {"torch_fl"}
    assert (site.torch_lib / "libnew_device.so").is_symlink()
    assert not os.path.lexists(site.torch_lib / "libtorch_cuda.so")
    assert not (site.torch_lib / "libtorch_global_deps.so").is_symlink()
    do_restore(site)
    assert differing(before, snapshot(site.root)) == []


def test_torch_upgraded_underneath_must_keep_its_files(tmp_path):
    site = complete_site(tmp_path)
    do_relink(site)
    old = {path.name: path.read_bytes() for path in backup(site).iterdir()}
    for name in CORE_LIBRARIES:
        renew(site.torch_lib / name, b"new " + name.encode())
    (site.root / "torch/version.py").write_text("__version__ = '2.11.0+cpu'\n")
    assert condition(site) is Condition.STALE
    aside = do_restore(site).aside
    assert aside == site.torch_lib / "_orig_backup.stale-2.10.0+cpu"
    assert {name: (aside / name).read_bytes() for name in CORE_LIBRARIES} == {
        name: old[name] for name in CORE_LIBRARIES
    }
    assert {path.name for path in site.torch_lib.iterdir() if path.is_file()} == {*CORE_LIBRARIES, "libgomp.so.1"}
    assert all((site.torch_lib / name).read_bytes() == b"new " + name.encode() for name in CORE_LIBRARIES)
    assert (condition(site), do_restore(site).action) == (Condition.STOCK, Action.NOTHING)


def test_relink_after_an_upgrade_must_keep_the_new_originals(tmp_path):
    site = complete_site(tmp_path)
    do_relink(site)
    spec: dict[str, Any] = {"defined": ("of_the_new_torch",), "needed": CORE_LIBRARIES["libc10.so"]}
    for path in site.torch_lib.iterdir():
        if path.is_symlink():
            path.unlink()
    for name, needed in CORE_LIBRARIES.items():
        site.library(site.torch_lib / name, **{**spec, "needed": needed})
    (site.root / "torch/version.py").write_text("__version__ = '2.10.1+cpu'\n")
    new = snapshot(site.root)
    outcome = do_relink(site)
    assert (outcome.action, outcome.aside) == (Action.RELINKED, site.torch_lib / "_orig_backup.stale-2.10.0+cpu")
    assert core_of(site) == {"torch_fl"}
    do_restore(site)
    after = snapshot(site.root)
    assert {name for name in differing(new, after) if (site.root / name).is_file()} <= {"torch_fl_relinked.pth"}
    assert core_of(site) == {"torch"}


def test_reinstalled_torch_of_the_same_version_must_simply_end_the_relink(tmp_path):
    site = complete_site(tmp_path)
    before = snapshot(site.root)
    do_relink(site)
    for name in CORE_LIBRARIES:
        data, status = (backup(site) / name).read_bytes(), (backup(site) / name).stat()
        renew(site.torch_lib / name, data)
        (site.torch_lib / name).chmod(status.st_mode)
        os.utime(site.torch_lib / name, ns=(status.st_mtime_ns, status.st_mtime_ns))
    assert condition(site) is Condition.STALE
    assert do_restore(site).aside is None
    assert differing(before, snapshot(site.root)) == []


def test_altered_original_must_not_be_put_back(tmp_path):
    site = complete_site(tmp_path)
    do_relink(site)
    renew(backup(site) / "libc10.so", bytes((backup(site) / "libc10.so").stat().st_size))
    before = snapshot(site.root)
    with pytest.raises(OriginalLostError, match=r"libc10\.so: missing or altered"):
        do_restore(site)
    assert differing(before, snapshot(site.root)) == []
    assert core_of(site) == {"torch_fl"}


@pytest.mark.parametrize("text", [None, "{", '{"schema": 2}', '{"schema": 1}'], ids=["gone", "cut", "newer", "empty"])
def test_journal_that_cannot_be_read_must_leave_the_originals_alone(tmp_path, text):
    site = complete_site(tmp_path)
    do_relink(site)
    journal = backup(site) / "journal.relinked.json"
    journal.unlink()
    if text is not None:
        journal.write_text(text)
    before = snapshot(site.root)
    for action in (do_relink, do_restore):
        with pytest.raises(JournalError, match=r"journal\.relinked\.json"):
            action(site)
    assert differing(before, snapshot(site.root)) == []


def test_restore_must_work_when_torch_fl_is_gone(tmp_path):
    site = complete_site(tmp_path)
    before = {name: what for name, what in snapshot(site.root).items() if not name.startswith("torch_fl")}
    do_relink(site)
    for package in ("torch_fl", "torch_fl_boot"):
        shutil.rmtree(site.root / package)
    assert condition(site) is Condition.DANGLING
    command = [sys.executable, "-I", str(backup(site) / "restore.pyz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{site.torch_lib}: restored: ")
    assert differing(before, snapshot(site.root)) == []
    assert core_of(site) == {"torch"}


def test_interpreter_start_must_heal_a_torch_whose_bundle_is_gone(tmp_path):
    site = complete_site(tmp_path)
    do_relink(site)
    shutil.rmtree(site.root / "torch_fl")
    shutil.rmtree(site.root / "torch_fl_boot")
    # As site-packages, where .pth files count.
    done = site.run(f"import site; site.addsitedir({str(site.root)!r}); import torch; print(torch.__version__)")
    assert (done.returncode, done.stdout) == (0, "2.10.0+cpu\n")
    assert done.stderr.startswith(f"torch_fl: torch_fl is gone; {site.torch_lib}: restored: ")
    assert condition(site) is Condition.STOCK


def test_interpreter_start_must_leave_a_working_relink_alone(tmp_path):
    site = complete_site(tmp_path)
    do_relink(site)
    before = snapshot(site.root)
    done = site.run(f"import site; site.addsitedir({str(site.root)!r}); import sys; print('runpy' in sys.modules)")
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert differing(before, snapshot(site.root)) == []


def test_record_must_list_what_relink_added_and_be_given_back(tmp_path):
    site = complete_site(tmp_path)
    record = site.root / "torch-2.10.0+cpu.dist-info/RECORD"
    record.parent.mkdir()
    text = 'torch/__init__.py,sha256=abc,1\r\ntorch/lib/libc10.so,sha256=def,2\r\n"odd,name",,\r\n'
    record.write_bytes(text.encode())
    status = record.stat()
    do_relink(site)
    rows = record.read_text().splitlines()
    assert rows[:3] == ["torch/__init__.py,sha256=abc,1", "torch/lib/libc10.so,,", '"odd,name",,']
    listed = {row.split(",")[0] for row in rows}
    present = {f"torch/lib/{path.relative_to(site.torch_lib)}" for path in site.torch_lib.rglob("*") if path.is_file()}
    added = {name for name in present if "_orig_backup" in name or "cuda" in name or "nvrtc" in name}
    assert added
    assert added | {"torch_fl_relinked.pth"} <= listed
    do_restore(site)
    assert record.read_bytes() == text.encode()
    assert record.stat().st_ino == status.st_ino


def test_record_that_others_changed_must_keep_their_rows(tmp_path):
    site = complete_site(tmp_path)
    record = site.root / "torch-2.10.0+cpu.dist-info/RECORD"
    record.parent.mkdir()
    record.write_text("torch/lib/libc10.so,sha256=def,2\n")
    do_relink(site)
    record.write_text(record.read_text() + "torch/added.py,,\n")
    do_restore(site)
    assert record.read_text() == "torch/lib/libc10.so,sha256=def,2\ntorch/added.py,,\n"
