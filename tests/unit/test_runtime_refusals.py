"""Refusals of `import torch_fl` that lie in the process or in the torch that is installed, not in the wheel."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.support.fake_torch import CORE, DEVICE, THEN_TORCH, TRY, complete_site
from torch_fl_boot import maps
from torch_fl_boot.errors import IncompatibleError

INDEX = "https://download.pytorch.org/whl/cpu"
RELOAD = "the loader's words name the file; reinstall torch_fl if it is one of the bundle's"
CANNOT_OPEN = "cannot open shared object file: No such file or directory"


@pytest.mark.parametrize("core", ["vendor", "stock"])
def test_torch_imported_first_must_be_refused_before_any_dlopen(tmp_path, core):
    site = complete_site(tmp_path, core=core)
    count = "import torch, sys\nopened = []\nsys.addaudithook(lambda event, args: opened.append(args) if event == "
    done = site.run(f"{count}'ctypes.dlopen' else None)\n{TRY * 2}\nprint(opened, torch.__version__)")
    said = done.stdout.removesuffix("[] 2.10.0+cpu\n")
    assert said == 2 * (
        "ImportOrderError\n"
        "torch_fl must be imported before torch: torch is already imported; "
        f"{site.torch_lib}/libc10.so is loaded in this process\n"
        "hint: start a new process and put `import torch_fl` before the first `import torch`, or leave it to the "
        "wheel's hook, which FLAGOS_HOOK=0 and `python -S` turn off and PYTHONPATH folders lack\n"
    )


@pytest.mark.parametrize("core", ["vendor", "stock"])
def test_libtorch_brought_by_an_embedding_program_must_be_refused(tmp_path, core):
    site = complete_site(tmp_path, core=core)
    done = site.run(f"import ctypes; ctypes.CDLL('{site.torch_lib}/libtorch_cpu.so')\n{TRY}")
    assert done.stdout.splitlines()[1] == (
        f"torch_fl must be imported before torch: {site.torch_lib}/libc10.so is loaded in this process"
    )


def test_preloaded_foreign_core_must_be_refused(tmp_path):
    site = complete_site(tmp_path)
    foreign = site.library(tmp_path / "foreign/libc10.so")
    done = site.run(TRY, environ={"LD_PRELOAD": str(foreign)})
    assert f"{foreign} is loaded in this process" in done.stdout


def test_missing_torch_must_name_the_one_to_install(tmp_path):
    site = complete_site(tmp_path)
    shutil.rmtree(site.root / "torch")
    assert site.run(TRY).stdout == (
        "TorchMissingError\ntorch_fl needs stock torch 2.10.0, but no torch is installed\n"
        f"hint: pip install torch==2.10.0+cpu --index-url {INDEX}\n"
    )


def test_remains_of_an_uninstalled_torch_must_not_pass_for_one(tmp_path):
    site = complete_site(tmp_path)
    (site.root / "torch/__init__.py").unlink()
    assert site.run(TRY).stdout == (
        f"TorchMissingError\ntorch_fl needs stock torch 2.10.0, but {site.root}/torch holds only the remains of one\n"
        f"hint: pip install torch==2.10.0+cpu --index-url {INDEX}\n"
    )


def test_torch_without_a_version_must_be_refused(tmp_path):
    site = complete_site(tmp_path)
    (site.root / "torch/version.py").write_text("debug = False\n")
    assert f"but {site.root}/torch/version.py names no version" in site.run(TRY).stdout


@pytest.mark.parametrize("asked", ["overlay", "Preload"])
def test_strategy_that_this_version_lacks_must_be_refused(tmp_path, asked):
    done = complete_site(tmp_path).run(TRY + THEN_TORCH, environ={"FLAGOS_CORE": asked})
    assert done.stdout == (
        f"StrategyError\nFLAGOS_CORE='{asked}' is not supported; this version of torch_fl knows: preload, relink\n"
        "hint: unset FLAGOS_CORE, or set it to one of these\n---\n2.10.0+cpu\n"
    )


def test_stock_torch_that_does_not_fit_the_core_must_be_named(tmp_path):
    site = complete_site(tmp_path)
    spec: dict[str, Any] = {
        "needed": ("libtorch_python.so",),
        "runpath": "$ORIGIN/lib",
        "undefined": ("initModuleOfAnotherBuild",),
    }
    stub = site.library(site.root / "torch/_C.so", **spec)
    init = site.root / "torch/__init__.py"
    init.write_text(init.read_text().replace('ctypes.CDLL(str(_here / "_C.so"))', "import torch._C"))
    assert site.run(TRY).stdout == (
        f"TorchImportError\nfake: stock torch could not be imported on the bundle's core: {stub}: undefined symbol: "
        "initModuleOfAnotherBuild\nhint: stock torch is incomplete, or does not belong to the bundle; reinstall torch "
        "and torch_fl\n"
    )


def test_second_copy_under_a_mangled_name_must_be_reported(tmp_path):
    site = complete_site(tmp_path)
    copy = site.library(site.root / "torch.libs/libc10-0123abcd.so")
    with (site.root / "torch/__init__.py").open("a") as stream:
        stream.write(f"ctypes.CDLL({str(copy)!r})\n")
    assert site.run(TRY).stdout == (
        "MixedCoreError\ntorch runs on a mixture of libraries:\n"
        f"  libc10.so is mapped from {copy}, {site.bundle}/libc10.so; expected {site.bundle}/libc10.so\n"
        "hint: unset LD_PRELOAD and LD_LIBRARY_PATH entries that hold a torch, then start a new process\n"
    )


def test_preload_that_left_something_behind_must_close_torch_off(tmp_path):
    """Here a library of the bundle is mapped beforehand; old loaders keep some after a failure."""
    site = complete_site(tmp_path)
    site.write_bundle({**CORE, **DEVICE, "libmagma.so": ("libmkl.so.1",)})
    hold = f"import ctypes; ctypes.CDLL('{site.bundle}/libc10.so')\n"
    done = site.run(hold + TRY + TRY.replace("torch_fl", "torch"))
    text = (
        "LeftoverError\n"
        f"fake: the bundle could not be loaded: libmkl.so.1: {CANNOT_OPEN}\n"
        "parts of the bundle stay mapped in this process: libc10.so\n"
        f"hint: {RELOAD}; torch cannot be imported in this process, start a new one\n"
    )
    assert done.stdout == text * 2


@pytest.mark.parametrize("content", [b"def (", b"\xff\xfe", b"a\0b"], ids=["no-python", "no-text", "null-byte"])
def test_torch_with_an_unreadable_version_must_be_refused(tmp_path, content):
    site = complete_site(tmp_path)
    (site.root / "torch/version.py").write_bytes(content)
    assert (
        f"TorchMissingError\ntorch_fl needs stock torch 2.10.0, but {site.root}/torch/version.py cannot be read: "
        in (site.run(TRY).stdout)
    )


@pytest.mark.parametrize("core", ["the bundle's core", "its own core"])
def test_torch_that_lacks_a_library_it_opens_itself_must_be_refused(tmp_path, core):
    site = complete_site(tmp_path)
    if core == "its own core":
        (site.root / "torch_fl/_bundle.json").unlink()
        shutil.rmtree(site.bundle)
    lost = site.torch_lib / "libtorch_global_deps.so"
    lost.unlink()
    assert site.run(TRY).stdout.startswith(
        f"TorchImportError\nfake: stock torch could not be imported on {core}: {lost}: {CANNOT_OPEN}\nhint: "
    )


def test_plugin_without_its_libraries_must_be_refused(tmp_path):
    site = complete_site(tmp_path)
    (site.root / "torch_fl/flagos/__init__.py").write_text("raise ImportError('libtorch_fl.so: no such file')")
    assert site.run(TRY).stdout == (
        "PluginImportError\nfake: the plugin's own libraries could not be loaded: libtorch_fl.so: no such file\n"
        "hint: reinstall torch_fl: pip install --force-reinstall --no-deps <the wheel>\n"
    )


# What a Python built for an old glibc lacks, and what a sandbox forbids.
NO_MEMFD = {
    "python-without": "import os\ndel os.memfd_create, os.MFD_CLOEXEC\n",
    "sandbox-forbids": "import os\ndef no(*_): raise PermissionError(1, 'no')\nos.memfd_create = no\n",
}


@pytest.mark.parametrize("before", NO_MEMFD.values(), ids=NO_MEMFD)
def test_bundle_must_be_opened_without_memfd_create(tmp_path, before):
    site, scratch = complete_site(tmp_path), tmp_path / "scratch"
    scratch.mkdir()
    done = site.run(before + TRY, environ={"TMPDIR": str(scratch)})
    assert done.stdout == "imported\n"
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("before", NO_MEMFD.values(), ids=NO_MEMFD)
def test_missing_driver_must_be_told_without_memfd_create(tmp_path, before):
    site = complete_site(tmp_path)
    (site.sdk / "libdriver.so.5").unlink()
    assert f"  libdriver.so.5: {CANNOT_OPEN}\n" in site.run(before + TRY).stdout


def test_no_place_for_the_index_file_must_not_pass_for_a_missing_driver(tmp_path):
    before = NO_MEMFD["sandbox-forbids"] + "import tempfile\ntempfile.tempdir = '/nonexistent'\n"
    said = complete_site(tmp_path).run(before + TRY + THEN_TORCH).stdout
    assert said.startswith(
        "IndexFileError\nthe file by which the bundle is opened could not be made, neither in memory "
    )
    assert said.endswith(
        "hint: allow memfd_create in this sandbox, or set TMPDIR to a directory that can be written\n---\n2.10.0+cpu\n"
    )


def test_a_process_without_proc_must_be_told_what_to_mount(monkeypatch, tmp_path):
    monkeypatch.setattr(maps, "_MAPS", tmp_path / "maps")
    with pytest.raises(IncompatibleError, match=r"needs .*/maps to tell which .*: No such file.*\nhint: mount /proc"):
        maps.mapped_libraries()
