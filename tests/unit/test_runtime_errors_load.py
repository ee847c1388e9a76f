"""Refusals of the load that name everything at once: symbols, versions, mounts, permissions, LD_PRELOAD."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.commands import WITHOUT_PRIVILEGES, answer
from tests.support.fake_torch import CORE, DEVICE, THEN_TORCH, TRY, FakeSite, complete_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STARTED = "2.10.0+cpu\n"
UPDATE = (
    "hint: the driver stack or a library on LD_LIBRARY_PATH is older than the bundle needs (the bundle was built with "
    "SDK 7.1); update it\n"
)


def replace(site: FakeSite, name: str, **spec: Any) -> None:
    """Write another library under the same name, and a manifest that describes it."""
    entry = next(entry for entry in site.manifest["files"] if entry["name"] == name)
    path = site.library(site.bundle / name, needed=tuple(entry["needed"]), runpath=":".join(entry["runpath"]), **spec)
    entry["size"] = path.stat().st_size
    site.write_manifest()


def twice(site: FakeSite, *, environ: dict[str, str] | None = None) -> str:
    """Try the import twice, then torch, and return the refusal, which both tries must give."""
    done = site.run(TRY + TRY + THEN_TORCH, environ=environ)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    said, _, after = done.stdout.partition("---\n")
    assert after == "2.10.0+cpu\n"
    half = said[: len(said) // 2]
    assert said == half * 2
    return half


def test_all_missing_symbols_of_the_driver_must_be_named(tmp_path):
    site = complete_site(tmp_path)
    replace(site, "libc10_cuda.so", undefined=("drvStreamWait", "drvGraphLaunch"))
    replace(site, "libtorch_cuda.so", undefined=("drvGraphLaunch",))
    name, what, *lines = twice(site).splitlines(keepends=True)
    assert name == "PreloadError\n"
    assert what.startswith(f"fake: the bundle could not be loaded: {site.bundle}/")
    assert "undefined symbol: drv" in what
    assert "".join(lines) == (
        "no library in this process provides:\n"
        "  drvGraphLaunch, needed by libc10_cuda.so, libtorch_cuda.so\n"
        "  drvStreamWait, needed by libc10_cuda.so\n" + UPDATE
    )


def test_driver_library_that_lacks_a_symbol_of_another_must_not_count_as_missing(tmp_path):
    """One driver library is older than the other, which the loader blames."""
    site = complete_site(tmp_path)
    site.library(site.sdk / "libdriver.so.5", needed=("libdriverdeep.so.2",), undefined=("deepNew",))
    site.library(site.sdk / "libdriverdeep.so.2")
    said = twice(site)
    assert said.startswith("PreloadError\nfake: the bundle could not be loaded: ")
    assert "libdriver.so.5: undefined symbol: deepNew\n" in said
    assert "no library in this process provides:\n  deepNew, needed by libdriver.so.5\n" + UPDATE in said


def test_symbol_that_the_driver_does_export_must_not_be_named(tmp_path):
    site = complete_site(tmp_path)
    site.library(site.sdk / "libdriver.so.5", defined=("drvStreamWait",))
    replace(site, "libc10_cuda.so", undefined=("drvStreamWait", "drvGraphLaunch"))
    assert "drvStreamWait" not in twice(site)


def test_missing_symbol_version_must_be_named_with_the_library_that_lacks_it(tmp_path):
    site = complete_site(tmp_path)
    site.write_bundle({**CORE, **DEVICE, "libmagma.so": ("libc.so.6",)})
    replace(site, "libmagma.so", version_needs={"libc.so.6": ("GLIBC_9.99",)})
    said = twice(site)
    assert "version `GLIBC_9.99' not found (required by " in said
    assert "no library in this process provides:\n  version GLIBC_9.99 in /" in said
    assert "libc.so.6, needed by libmagma.so\n" + UPDATE in said


def test_more_symbols_than_an_error_can_list_must_be_counted(tmp_path):
    site = complete_site(tmp_path)
    replace(site, "libc10_cuda.so", undefined=tuple(f"drv{number:04}" for number in range(100)))
    assert "  drv0059, needed by libc10_cuda.so\n  and 40 more; `python -m torch_fl doctor` lists all\n" in twice(site)


@pytest.mark.parametrize("by", ["path", "name"])
def test_core_that_ld_preload_brings_must_be_refused_with_its_entry(tmp_path, by):
    site = complete_site(tmp_path)
    foreign = site.library(tmp_path / "foreign/libc10.so")
    entry = str(foreign) if by == "path" else foreign.name
    environ = {"LD_PRELOAD": entry, "LD_LIBRARY_PATH": str(foreign.parent)}
    done = site.run(TRY + TRY + "import torch\nprint(torch.__version__)", environ=environ)
    said, after = done.stdout[: -len(STARTED)], done.stdout[-len(STARTED) :]
    assert (after, done.stderr) == (STARTED, "")
    assert said == 2 * (
        "ForeignCoreError\n"
        f"torch_fl cannot load its bundle beside another torch core: {foreign} is loaded in this process, brought by "
        f"LD_PRELOAD={entry}; expected none\n"
        "hint: remove this entry from LD_PRELOAD (or /etc/ld.so.preload), then start a new process\n"
    )


def test_foreign_core_on_the_library_path_must_not_be_taken(tmp_path):
    site = complete_site(tmp_path)
    site.library(tmp_path / "foreign/libc10.so")
    done = site.run(TRY, environ={"LD_LIBRARY_PATH": str(tmp_path / "foreign")})
    assert (done.stdout, done.stderr) == ("imported\n", "")


@pytest.fixture
def noexec(tmp_path) -> Iterator[Path]:
    """Give a directory on a tmpfs that is mounted noexec."""
    if os.getuid() != 0:
        pytest.skip("mounting a file system needs root")
    folder = tmp_path / "noexec"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "noexec,size=16m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this container may not mount: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_bundle_on_a_noexec_mount_must_be_refused_in_the_loaders_words(tmp_path, noexec):
    """Torch lies elsewhere, so that it can be imported afterwards."""
    site = complete_site(tmp_path)
    replace(site, "libc10.so", code=True)
    shutil.move(site.root / "torch_fl", noexec / "torch_fl")
    (site.root / "torch_fl").symlink_to(noexec / "torch_fl")
    said = twice(site)
    assert said == (
        f"NoExecMountError\nfake: the bundle could not be loaded: {site.bundle}/libc10.so: failed to map segment from "
        f"shared object\n{site.bundle} lies on a file system mounted noexec, expected one that allows to map code\n"
        f"hint: install the environment on a file system without noexec, or remount the one that holds {site.bundle}\n"
    )
    finding = next(item for item in answer(site, "doctor", "--quick")["findings"] if item["code"] == "R013")
    assert (finding["severity"], finding["where"]) == ("error", str(site.root / "torch_fl"))


@pytest.mark.parametrize("refused", ["file", "folder"])
def test_bundle_that_this_user_may_not_read_must_be_refused(tmp_path, refused):
    site = complete_site(tmp_path)
    path = site.bundle / "libshm.so" if refused == "file" else site.bundle
    path.chmod(0)
    try:
        done = site.run(WITHOUT_PRIVILEGES + TRY + TRY + THEN_TORCH)
    finally:
        path.chmod(0o755)
    names = ["libshm.so"] if refused == "file" else [entry["name"] for entry in site.manifest["files"]]
    lines = "".join(f"  {name}: cannot be read: Permission denied\n" for name in names)
    assert (
        done.stdout
        == 2
        * (
            f"UnreadableBundleError\nthe bundle in {site.bundle} cannot be read by user {os.getuid()}:\n{lines}"
            "hint: give this user the right to read the files and to enter the directories above them\n"
        )
        + "---\n2.10.0+cpu\n"
    ), done.stderr
