"""The bundle stage on fake installations: what it writes, what it leaves alone, and what it does when stopped."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import io
import os
import shutil
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bundle.backends import BACKENDS
from bundle.bundling import BundleFacts, _copy, bundle_stage, load_bundle
from bundle.elf import is_elf, read_elf
from bundle.errors import NoSpaceError, RefusedError, ToolError
from bundle.manifest import BUNDLE_FILE, read_manifest
from bundle.patch import Patchelf, check_patchelf, find_patchelf
from bundle.ui import Reporter
from tests.support.vendor_tree import make_vendor, plan_of

FACTS = BundleFacts(torch="2.10.0", python="cp312", label="x1", forged=True)
KILLED_STAGE = """
import os, sys, tempfile
from pathlib import Path
from bundle.bundling import BundleFacts, bundle_stage
from bundle.patch import Patchelf
from bundle.ui import Reporter
from tests.support.vendor_tree import make_vendor, plan_of
plan = plan_of(make_vendor("metax", Path(sys.argv[1])))
facts = BundleFacts(torch="2.10.0", python="cp312", label="", forged=True)
bundle_stage(plan, facts, Path(sys.argv[2]), patchelf=Patchelf(path=Path(sys.argv[3]), version="1"), ui=Reporter())
"""


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Return a function that gives the tree and plan of a backend, made once per module."""
    made = {}

    def get(name):
        if name not in made:
            tree = make_vendor(name, tmp_path_factory.mktemp(name))
            made[name] = tree, plan_of(tree)
        return made[name]

    return get


@pytest.fixture
def tool(patchelf):
    return check_patchelf(patchelf)


@pytest.fixture(scope="module")
def finished(planned, tmp_path_factory):
    """Return a function that gives a finished bundle of a backend, for tests that only look."""

    @functools.cache
    def get(name):
        out = tmp_path_factory.mktemp("finished") / name
        ui = Reporter(err=io.StringIO(), out=io.StringIO(), colour=False)
        bundle_stage(planned(name)[1], FACTS, out, patchelf=find_patchelf({"PATH": os.environ["PATH"]}), ui=ui)
        return out

    return get


@pytest.fixture
def bundled(planned, tool, ui, tmp_path):
    """Return a function that runs the stage into `tmp_path / "bundle"` and gives that folder."""

    def run(name="metax", plan=None):
        bundle_stage(plan or planned(name)[1], FACTS, tmp_path / "bundle", patchelf=tool, ui=ui)
        return tmp_path / "bundle"

    return run


def snapshot(folder):
    """Return mode, mtime and content of every file, following links."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(("name", "count"), [("metax", 9), ("ppu", 12), ("dcu", 28), ("cuda", 5)])
def test_the_manifest_must_describe_the_final_files(finished, name, count):
    out = finished(name)
    manifest = read_manifest(out / BUNDLE_FILE)
    folder = out / BACKENDS[name].bundle_dir
    assert len(manifest.files) == count
    assert sorted(path.name for path in folder.iterdir()) == [file.name for file in manifest.files]
    for file in manifest.files:
        path = folder / file.name
        assert file.size == path.stat().st_size
        assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        if is_elf(path):
            info = read_elf(path)
            assert (file.soname, file.needed, file.runpath) == (info.soname, info.needed, info.runpath)
            assert info.rpath == ()
            assert info.runpath[0] == f"$ORIGIN/../../torch_fl/{folder.name}"


def test_the_manifest_must_carry_plan_and_facts(finished):
    manifest = read_manifest(finished("dcu") / BUNDLE_FILE)
    assert (manifest.backend, manifest.core, manifest.strategy) == ("dcu", "vendor", "preload")
    assert (manifest.torch, manifest.python, manifest.label, manifest.forged) == ("2.10.0", "cp312", "x1", True)
    assert (manifest.vendor_torch, manifest.machine) == ("2.10.0+das.opt1.dtk2604", "x86_64")
    assert manifest.version_fields == {"hip": "6.3.26113", "rocm": "26.04"}
    assert manifest.driver_sonames == ("libgalaxyhip.so.5", "libomp.so")
    assert "/opt/dtk/cuda/cuda-12/lib64" in manifest.driver_dirs


def test_no_path_of_this_machine_must_appear_in_the_output(finished, planned):
    tree, _ = planned("dcu")
    out = finished("dcu")
    for path in out.rglob("*"):
        if path.is_file():
            assert str(tree.sdk_root.parent).encode() not in path.read_bytes(), path


def test_version_py_must_be_carried_unchanged(finished, planned):
    tree, _ = planned("dcu")
    copy = finished("dcu") / "lib_dcu" / "vendor_version.py"
    assert copy.read_bytes() == (tree.torch / "version.py").read_bytes()


def test_modes_must_be_set_whatever_the_vendors_are(finished):
    folder = finished("dcu") / "lib_dcu"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes.pop("vendor_version.py") == 0o644
    assert set(modes.values()) == {0o755}


def test_links_must_become_files(finished):
    assert not [path for path in finished("dcu").rglob("*") if path.is_symlink()]


def test_the_vendors_directory_must_not_be_written(tmp_path, tool, ui):
    tree = make_vendor("cuda", tmp_path)
    for path in tree.lib.iterdir():
        path.chmod(0o555)
    before = snapshot(tmp_path / "vendor"), snapshot(tree.sdk_root)
    bundle_stage(plan_of(tree), FACTS, tmp_path / "bundle", patchelf=tool, ui=ui)
    assert (snapshot(tmp_path / "vendor"), snapshot(tree.sdk_root)) == before


def test_a_read_only_file_must_be_copied_writable(planned, tmp_path):
    _, plan = planned("metax")
    source = shutil.copyfile(plan.copies[0].source, tmp_path / "readonly.so")
    source.chmod(0o444)
    _copy(replace(plan.copies[0], source=source), tmp_path / "copy.so")
    assert (tmp_path / "copy.so").stat().st_mode & stat.S_IWUSR
    assert (tmp_path / "copy.so").read_bytes() == source.read_bytes()


def test_two_runs_must_give_the_same_bytes(finished, bundled):
    first = {name: content for name, (_, _, content) in snapshot(finished("cuda")).items()}
    second = {name: content for name, (_, _, content) in snapshot(bundled("cuda")).items()}
    assert first == second


def test_a_leftover_of_another_backend_must_not_survive(bundled):
    # The field built into the source tree, where files of the backend built before ended up in the wheel.
    out = bundled("dcu")
    (out / "lib_dcu" / "libold.so").write_bytes(b"old")
    (out / "lib_maca").mkdir()
    (out / "lib_maca" / "libc10.so").write_bytes(b"old")
    bundled("metax")
    assert sorted(path.name for path in out.iterdir()) == [BUNDLE_FILE, "lib_maca"]
    assert len(list((out / "lib_maca").iterdir())) == 9
    load_bundle(out, backend="metax")


def test_a_failed_stage_must_leave_the_old_output_and_nothing_else(bundled, planned, ui, tmp_path):
    out = bundled("metax")
    before = snapshot(out)
    broken = Patchelf(path=tmp_path / "no-patchelf", version="0.18.0")
    with pytest.raises(ToolError, match="no-patchelf could not be started"):
        bundle_stage(planned("metax")[1], FACTS, out, patchelf=broken, ui=ui)
    assert snapshot(out) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [".bundle.lock", "bundle"]


def test_a_killed_stage_must_leave_the_output_as_it_was_and_the_next_must_start_clean(bundled, tmp_path):
    out = bundled("cuda")
    before = snapshot(out)
    killer = tmp_path / "killer"
    killer.write_text("#!/bin/sh\nkill -KILL $PPID\n")
    killer.chmod(0o755)
    repository = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", KILLED_STAGE, tmp_path / "tree", out, killer]
    done = subprocess.run(command, cwd=repository, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert snapshot(out) == before
    assert (tmp_path / ".bundle.staging" / "lib_maca" / "libc10.so").is_file()
    bundled("metax")
    load_bundle(out, backend="metax")
    assert not (tmp_path / ".bundle.staging").exists()


def test_an_output_that_was_moved_aside_must_be_cleaned_up(bundled, tmp_path):
    # A kill after the renames at the end leaves the older output under another name, beside the new one.
    bundled("cuda")
    (tmp_path / ".bundle.old" / "lib_maca").mkdir(parents=True)
    bundled("cuda")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".bundle.lock", "bundle"]


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
@pytest.mark.parametrize("name", ["bundle", ".bundle.old", ".bundle.staging"])
def test_whatever_stands_in_the_outputs_place_must_give_way_and_links_must_not_be_followed(
    bundled, tmp_path, name, kind
):
    target = tmp_path / "elsewhere"
    if kind == "file":
        (tmp_path / name).write_text("x")
    else:
        (tmp_path / name).symlink_to(target)
    if kind == "link":
        target.mkdir()
        (target / "kept").touch()
    bundled("cuda")
    bundled("cuda")
    assert (tmp_path / "bundle").is_dir()
    assert not (tmp_path / "bundle").is_symlink()
    left = {path.name for path in tmp_path.iterdir()} - {".bundle.lock", "bundle"}
    assert left == ({"elsewhere"} if kind == "link" else set())
    assert kind != "link" or (target / "kept").exists()


def test_two_stages_at_once_must_not_share_a_staging_folder(bundled, tmp_path):
    with (tmp_path / ".bundle.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RefusedError, match=r"metax: another run is writing .*/bundle, or a program"):
            bundled("metax")
    bundled("metax")


def test_disk_space_must_be_checked_before_copying(bundled, planned, tmp_path):
    _, plan = planned("metax")
    huge = replace(plan, copies=tuple(replace(copy, size=10**15) for copy in plan.copies))
    # Three in a hundred for patchelf, and no more: it would be a wrong refusal.
    needs = f"metax: the bundle needs {huge.size * 1.03 / 1e6:.0f} MB"
    with pytest.raises(NoSpaceError, match=rf"{needs} in .*, but only \d+ MB are free") as caught:
        bundled(plan=huge)
    assert caught.value.exit_code == 10
    assert not (tmp_path / "bundle").exists()


def test_progress_must_be_told_in_steps(bundled, said):
    bundled("metax")
    text = said()
    for step in ("metax: copy 9 files", "metax: set RUNPATH of 9 files with patchelf", "metax: hash 9 files"):
        assert f"bundle: {step}" in text


def test_warnings_of_the_plan_must_be_told(tmp_path, tool, ui, said):
    tree = make_vendor("metax", tmp_path)
    (tree.lib / "libshm.so").unlink()
    bundle_stage(plan_of(tree), FACTS, tmp_path / "bundle", patchelf=tool, ui=ui)
    assert "bundle: warning: metax: libshm.so not in vendor torch; stock's is used" in said()
