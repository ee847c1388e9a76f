"""A machine without the driver stack: torch as it is, no devices, and one text that says what is missing."""

from __future__ import annotations

import json

import pytest

from tests.support.fake_torch import CORE, DEVICE, NVRTC, complete_site, hooked_site
from tests.unit.test_runtime_hook import ON_BUNDLE, STATE, STOCK, state

TORCH_ALONE = {**STOCK, "registered": 1, "plugin": True}
# What the device module answers the first use with.
ABSENT = """
from torch_fl_boot.start import absent_driver
print(absent_driver())
"""
ORDERS = [pytest.param("import torch\n", id="torch-first"), pytest.param("import torch_fl\n", id="torch_fl-first")]
CANNOT_OPEN = "cannot open shared object file: No such file or directory"


def without_driver(tmp_path, core="vendor", make=hooked_site):
    site = make(tmp_path, core=core)
    for name in ("libdriver.so.5", "libdrivercore.so.1"):
        (site.sdk / name).unlink()
    return site


@pytest.mark.parametrize("core", ["vendor", "stock"])
@pytest.mark.parametrize("first", ORDERS)
def test_torch_must_stay_untouched_and_the_plugin_load(tmp_path, core, first):
    assert state(without_driver(tmp_path, core), before=first + "import torch, torch_fl\n") == TORCH_ALONE


@pytest.mark.parametrize("first", ORDERS)
def test_first_use_must_have_what_is_missing_and_what_to_do(tmp_path, first):
    site = without_driver(tmp_path)
    done = site.run(first + ABSENT)
    assert done.stdout == (
        "fake: libraries of the driver stack were not found: libdriver.so.5, libdrivercore.so.1; looked in "
        f"{site.bundle}, {site.sdk}, the directories of ld.so.conf\n"
        f"  libdriver.so.5: {CANNOT_OPEN}\n  libdrivercore.so.1: {CANNOT_OPEN}\n"
        "hint: install the fake driver and SDK, or source the SDK's environment script\n"
    )
    assert done.stderr == ""


def test_torch_fl_without_the_hook_must_import_too(tmp_path):
    site = without_driver(tmp_path, make=complete_site)
    done = site.run("import torch_fl\n" + STATE)
    assert json.loads(done.stdout.replace(str(tmp_path / "site"), "")) == {**TORCH_ALONE, "c10": [""], "python": [""]}


def test_bundle_info_must_say_that_torch_runs_alone_and_why(tmp_path):
    tell = "import torch_fl, json; i = torch_fl.bundle(); s = i.skipped\n"
    tell += "print(json.dumps([i.core, i.strategy, i.loaded, [e.name for e in s], sorted({e.reason for e in s})]))"
    names = [*CORE, *DEVICE, *NVRTC]
    reason = "the driver stack is absent: no libdriver.so.5, libdrivercore.so.1"
    assert json.loads(without_driver(tmp_path).run(tell).stdout) == ["stock", "none", [], names, [reason]]


def test_driver_alone_missing_must_keep_plain_torch_untouched(tmp_path):
    """As on a machine without a GPU that has the CUDA runtime: only libcaffe2_nvrtc needs the driver itself."""
    site = hooked_site(tmp_path, core="stock", driver=False)
    assert state(site) == TORCH_ALONE


def test_driver_alone_missing_must_not_keep_torch_fl_from_the_bundle(tmp_path):
    site = hooked_site(tmp_path, core="stock", driver=False)
    expected = {**ON_BUNDLE, "c10": ["torch"], "python": ["torch"], "hip": None}
    assert state(site, before="import torch_fl\n") == expected


def test_runtime_must_tell_absent_from_incomplete(tmp_path):
    """A library of another vendor, or one that is common, does not make a driver stack."""
    site = hooked_site(tmp_path)
    needs = {**CORE, **DEVICE, "libmagma.so": ("libdriveromp.so",)}
    site.write_bundle(needs, runtime_libraries=["libdriver.so.5"])
    (site.bundle / "libcaffe2_nvrtc.so").unlink()
    site.write_driver("libdriveromp.so")
    (site.sdk / "libdriver.so.5").unlink()
    assert state(site) == TORCH_ALONE
