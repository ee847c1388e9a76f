"""A repacked wheel in the hands of the real pip."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from bundle.backends import PPU
from bundle.repack import repack_stage
from bundle.ui import Reporter
from tests.support.repacking import inputs_of
from tests.support.wheels import WheelSpec, entries


@pytest.fixture
def ui():
    return Reporter(err=io.StringIO(), out=io.StringIO(), colour=False)


def test_pip_must_install_the_wheel_with_every_file_intact(tmp_path, ui):
    made = repack_stage(inputs_of(WheelSpec(backend=PPU), tmp_path), ui)
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    target = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--disable-pip-version-check", "-q"]
    foreign = ["--python-version", "3.12", "--only-binary=:all:", "--implementation", "cp", "--abi", "cp312"]
    command += [
        "--target",
        str(target),
        *(foreign if version != "312" else []),
        "--platform",
        "linux_x86_64",
        str(made),
    ]
    subprocess.run(command, check=True)
    for member in entries(made):
        installed = target / member.name
        if not member.name.endswith("/RECORD"):
            assert installed.read_bytes() == member.data, member.name
    assert (target / "torch_fl/lib_ppu/libc10.so").stat().st_mode & 0o111
