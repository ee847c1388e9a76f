"""What relink refuses, and what it cleans up first."""

from __future__ import annotations

import os

import pytest

from tests.soak.kills import differing, snapshot
from tests.soak.monitor import origins
from tests.support.fake_torch import CORE as CORE_LIBRARIES
from tests.support.fake_torch import complete_site
from tests.support.relinked import MAPS, backup, condition, do_relink
from torch_fl_boot.manifest import read_build_record, read_manifest
from torch_fl_boot.relink import Condition, RelinkError, relink, settle
from torch_fl_boot.relink.errors import RelinkRefusedError
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
