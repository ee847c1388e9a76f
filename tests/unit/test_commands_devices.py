"""What `doctor` says of the devices, and of a device library that is damaged or kills its process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.support.fake_torch import FakeSite, complete_site
from torch_fl_boot.doctor_devices import Devices, ask_devices, check_devices
from torch_fl_boot.doctor_install import Installation, read_installation
from torch_fl_boot.report import Severity

if TYPE_CHECKING:
    from pathlib import Path


def installation(tmp_path: Path) -> Installation:
    found, _ = read_installation(complete_site(tmp_path).root / "torch_fl")
    assert found is not None
    return found


def test_runtime_that_sees_no_device_must_be_a_warning(tmp_path):
    (finding,) = check_devices(Devices(devices=(), error=""), installation(tmp_path))
    assert (finding.code, finding.severity, finding.found) == ("R041", Severity.WARNING, "0 devices")


def test_device_library_that_is_damaged_must_be_told_in_the_loaders_words(tmp_path):
    found = installation(tmp_path)
    library = found.package / "lib/libflagos.so"
    library.parent.mkdir()
    library.write_bytes(b"\x7fELF")
    assert ask_devices(found, (), dict(os.environ)).error == f"{library}: file too short"


def test_device_library_that_kills_its_process_must_be_told_with_the_signal(tmp_path):
    found = installation(tmp_path)
    site = FakeSite(root=found.package.parent)
    library = site.library(found.package / "lib/libflagos.so", defined=("flagosLastErrorText", "flagosOpen"))
    said = ask_devices(found, ("libdevice.so",), dict(os.environ))
    assert library.exists()
    # The "function" lies in data, which may not be executed.
    assert said.error.startswith("the process that asked for the devices ended with signal SIGSEGV: ")
