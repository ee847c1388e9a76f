"""What relink refuses, and what it cleans up first."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.soak.kills import differing, snapshot
from tests.soak.monitor import origins
from tests.support.commands import WITHOUT_PRIVILEGES
from tests.support.fake_torch import CORE as CORE_LIBRARIES
from tests.support.fake_torch import complete_site
from tests.support.relinked import MAPS, backup, condition, do_relink, do_restore, renew
from torch_fl_boot.manifest import read_build_record, read_manifest
from torch_fl_boot.relink import Condition, RelinkError, relink, settle
from torch_fl_boot.relink.errors import JournalError, RelinkRefusedError, restore_command
from torch_fl_boot.stock import StockTorch


def test_stage_left_by_a_killed_process_must_be_removed(tmp_path):
    site = complete_site(tmp_path)
    before = snapshot(site.root)
    (site.torch_lib / ".flagos_stage/ready").mkdir(parents=True)
    (site.torch_lib / ".flagos_stage/libc10.so").write_text("x")
    (site.root / "torch_fl_relinked.pth.flagos").write_text("x")
    backup(site).mkdir()  # what a process killed before the last step of restore leaves
    assert condition(site) is Condition.UNFINISHED
    settle(site.root / "torch", notify=pytest.fail)
    assert differing(before, snapshot(site.root)) == []


def test_linked_lib_folder_must_be_refused(tmp_path):
    site = complete_site(tmp_path)
    site.torch_lib.rename(tmp_path / "shared")
    site.torch_lib.symlink_to(tmp_path / "shared")
    with pytest.raises(RelinkRefusedError, match=r"lib is a link to .*shared, which other environments may share"):
        do_relink(site)
    assert not os.path.lexists(tmp_path / "shared/_orig_backup")


def test_torch_elsewhere_must_be_refused(tmp_path):
    site = complete_site(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (site.root / "torch_fl").rename(tmp_path / "elsewhere/torch_fl")
    package = tmp_path / "elsewhere/torch_fl"
    manifest = read_manifest(package, read_build_record(package))
    assert manifest is not None
    stock = StockTorch(package=site.root / "torch", version="2.10.0+cpu")
    with pytest.raises(RelinkRefusedError, match="expected them side by side"):
        relink(manifest, package, stock, notify=pytest.fail)


def test_bundle_that_looks_in_torch_first_must_be_refused(tmp_path):
    """While torch is being relinked it would take stock torch's libraries: a mixed core."""
    site = complete_site(tmp_path)
    for file in site.manifest["files"]:
        file["runpath"] = ["$ORIGIN", "$ORIGIN/../../torch_fl/lib_fake"]
    site.write_manifest()
    with pytest.raises(
        RelinkRefusedError, match=r"look for each other in torch/lib before the bundle: libtorch_cpu\.so"
    ):
        do_relink(site)


def test_bundle_that_would_pull_in_stock_libraries_must_be_refused(tmp_path):
    """Stock's libshm, which such a bundle relies on, comes first here, and brings stock's libc10."""
    site = complete_site(tmp_path)
    core = {name: needed for name, needed in CORE_LIBRARIES.items() if name != "libshm.so"}
    core["libtorch_python.so"] = ("libshm.so", "libtorch.so")
    site.write_bundle(core)
    with pytest.raises(RelinkRefusedError, match=r"would take from stock torch: libc10\.so, libtorch_cpu\.so"):
        do_relink(site)


def test_bundle_that_relies_on_stock_libshm_must_still_run_alone(tmp_path):
    site = complete_site(tmp_path)
    core = {name: needed for name, needed in CORE_LIBRARIES.items() if name != "libshm.so"}
    core["libtorch_python.so"] = ("libtorch.so", "libtorch_cpu.so", "libc10.so", "libshm.so")
    (site.bundle / "libshm.so").unlink()
    site.write_bundle(core)
    do_relink(site)
    done = site.run(MAPS)
    found = origins(done.stdout)
    assert found.pop("libshm.so") == "torch"
    assert set(found.values()) == {"torch_fl"}


def test_bundle_without_the_entry_must_be_refused(tmp_path):
    site = complete_site(tmp_path)
    site.write_bundle({"libc10.so": ()})
    with pytest.raises(RelinkRefusedError, match=r"the bundle of backend fake has no libtorch_python\.so"):
        do_relink(site)


def test_every_refusal_must_be_an_import_error_with_a_hint(tmp_path):
    site = complete_site(tmp_path)
    site.write_bundle({"libc10.so": ()})
    with pytest.raises(RelinkError) as caught:
        do_relink(site)
    assert isinstance(caught.value, ImportError)
    assert "\nhint: " in str(caught.value)


def write_journal(site, *, change=None, **more):
    """Change the journal of a relinked torch as no run of relink would."""
    path = backup(site) / "journal.relinked.json"
    journal = json.loads(path.read_text())
    journal.update(more)
    journal["changes"][0].update(change or {})
    renew(path, json.dumps(journal).encode())


GARBAGE = [
    pytest.param({"change": {"name": "../../outside"}}, "not plain names: '../../outside'", id="name-elsewhere"),
    pytest.param({"change": {"name": ".."}}, "not plain names: '..'", id="name-of-the-parent"),
    pytest.param({"change": {"name": "a\0b"}}, "not plain names: 'a\\x00b'", id="name-with-null"),
    pytest.param({"change": {"name": "\ud800"}}, "not plain names: '\\ud800'", id="name-that-is-no-text"),
    pytest.param({"torch": "../x"}, "not plain names: '../x'", id="version-elsewhere"),
    pytest.param({"entry": "libnone.so"}, "entry 'libnone.so' is not among the changes", id="entry"),
    pytest.param({"record": "../../RECORD"}, "record '../../RECORD' is not that of a distribution", id="record"),
    pytest.param({"record": "/etc/passwd"}, "record '/etc/passwd' is not that of a distribution", id="record-absolute"),
]


@pytest.mark.parametrize(("garbage", "what"), GARBAGE)
def test_journal_that_leads_elsewhere_must_be_refused_and_nothing_touched(tmp_path, garbage, what):
    site = complete_site(tmp_path)
    site.write_record()
    do_relink(site)
    write_journal(site, **garbage)
    before = snapshot(site.root)
    for action in (do_relink, do_restore):
        with pytest.raises(JournalError) as caught:
            action(site)
        assert f": {what}; the originals beside it were left alone\nhint: reinstall torch: " in str(caught.value)
    done = site.run(f"import torch_fl; {MAPS}")
    assert set(origins(done.stdout).values()) == {"torch_fl"}
    assert done.stderr.startswith("torch_fl: torch/lib was left as it is: ")
    assert differing(before, snapshot(site.root)) == []


@pytest.mark.parametrize("run", ["status", "restore", "relink", "import"])
def test_backup_that_this_user_may_not_read_must_be_told_and_torch_run(tmp_path, run):
    site = complete_site(tmp_path)
    do_relink(site)
    backup(site).chmod(0)
    main = f"from torch_fl_boot.cli import main\nprint(main([{run!r}]))"
    try:
        done = site.run(WITHOUT_PRIVILEGES + ("import torch_fl\nprint(0)" if run == "import" else main))
    finally:
        backup(site).chmod(0o755)
    assert f"{site.torch_lib} cannot be examined: Permission denied: {backup(site)}" in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == {"status": "1", "import": "0"}.get(run, "3")


def test_script_must_refuse_a_python_that_is_too_old_and_a_place_that_is_no_backup(tmp_path):
    site = complete_site(tmp_path)
    do_relink(site)
    program = zipfile.ZipFile(backup(site) / "restore.pyz").read("__main__.py").decode()
    old = f"import sys; sys.version_info = (3, 9, 0)\nexec({program!r}, {{'__name__': '__main__', '__file__': '/x'}})"
    done = site.run(old)
    assert (done.returncode, done.stderr.splitlines()) == (
        1,
        ["torch_fl: error: this needs Python 3.10 or newer", "hint: run it with the Python that torch is for"],
    )
    shutil.copy(backup(site) / "restore.pyz", tmp_path)
    done = subprocess.run(
        [sys.executable, "-I", tmp_path / "restore.pyz", "--json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, json.loads(done.stdout)["error"]) == (3, "TorchMissingError")


def test_restore_command_in_a_message_must_be_one_that_a_shell_takes(tmp_path):
    (tmp_path / "a b").mkdir()
    site = complete_site(tmp_path / "a b")
    do_relink(site)
    command = restore_command(backup(site)).rpartition(": ")[2].removeprefix("python ")
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -I {command}"], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    assert condition(site) is Condition.STOCK
