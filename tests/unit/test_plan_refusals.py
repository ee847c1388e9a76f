"""What the bundle stage refuses to plan: each fault of an installation, with all of its kind at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bundle.errors import (
    CoreLibraryMissingError,
    InputNotFoundError,
    LibraryCycleError,
    MalformedError,
    RefusedError,
    UnresolvedLibraryError,
    VersionMismatchError,
)
from bundle.gather import read_stock
from tests.support.tiny_elf import ElfSpec
from tests.support.vendor_tree import GRAFTED, MKL, make_vendor, plan_of, rewrite, version_text


def test_dcu_without_version_py_must_be_refused(tmp_path):
    tree = make_vendor("dcu", tmp_path)
    (tree.torch / "version.py").unlink()
    with pytest.raises(CoreLibraryMissingError, match=r"missing from .*: version\.py"):
        plan_of(tree, version="2.10.0")


def test_a_libshm_that_stock_lacks_too_must_be_refused(tmp_path):
    tree = make_vendor("metax", tmp_path)
    (tree.lib / "libshm.so").unlink()
    (tree.stock_lib / "libshm.so").unlink()
    (tree.stock_lib / "libshm.so").mkdir()
    with pytest.raises(RefusedError, match=r"neither the vendor's torch nor stock torch 2\.10\.0\+cpu has libshm\.so"):
        plan_of(tree)


def test_all_missing_core_libraries_must_be_listed_at_once(tmp_path):
    tree = make_vendor("metax", tmp_path)
    for name in ("libtorch_cuda.so", "libc10.so"):
        (tree.lib / name).unlink()
    with pytest.raises(CoreLibraryMissingError) as caught:
        plan_of(tree)
    assert str(caught.value) == f"metax: required libraries missing from {tree.lib}: libc10.so, libtorch_cuda.so"
    assert caught.value.exit_code == 4


def test_all_unresolved_libraries_must_be_listed_with_their_users(tmp_path):
    tree = make_vendor("metax", tmp_path)
    rewrite(tree, "libc10.so", needed=("libfoo.so.1", "libc.so.6"))
    rewrite(tree, "libshm.so", needed=("libfoo.so.1", "libbar.so.2"))
    with pytest.raises(UnresolvedLibraryError) as caught:
        plan_of(tree)
    text = str(caught.value)
    assert text.startswith("metax: 2 needed libraries are unresolved; looked in the 9 files to bundle, stock torch ")
    assert "\n  libbar.so.2 (needed by libshm.so)\n  libfoo.so.1 (needed by libc10.so, libshm.so)" in text
    assert caught.value.exit_code == 5


def test_a_vendor_core_must_not_be_completed_from_stock(tmp_path):
    tree = make_vendor("metax", tmp_path)
    ElfSpec(soname="libextra.so").write(tree.stock_lib / "libextra.so")
    rewrite(tree, "libc10.so", needed=("libextra.so",))
    with pytest.raises(UnresolvedLibraryError, match=r"libextra\.so \(needed by libc10\.so\)"):
        plan_of(tree)


def test_a_dangling_link_in_the_sdk_must_not_count_as_a_driver(tmp_path):
    tree = make_vendor("metax", tmp_path)
    (tree.sdk_root / "lib" / "libvendorblas.so.3").symlink_to("gone")
    rewrite(tree, "libc10.so", needed=("libvendorblas.so.3",))
    with pytest.raises(UnresolvedLibraryError, match="libvendorblas"):
        plan_of(tree)


def test_a_cycle_must_be_refused(tmp_path):
    tree = make_vendor("metax", tmp_path)
    rewrite(tree, "libc10.so", needed=("libtorch_cpu.so",))
    with pytest.raises(LibraryCycleError, match=r"libc10\.so -> libtorch_cpu\.so -> libc10\.so"):
        plan_of(tree)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        pytest.param({"soname": "libc10.so.1"}, r"DT_SONAME is libc10\.so\.1, expected libc10\.so", id="other-soname"),
        pytest.param({"soname": None}, r"DT_SONAME is missing, expected libc10\.so", id="no-soname"),
        pytest.param({"needed": ("libtorch_cpu-872a1bfe.so",)}, "grafted copy of a core library", id="mangled-core"),
        pytest.param({"machine": "aarch64"}, "is for aarch64, stock torch for x86_64", id="other-machine"),
    ],
)
def test_a_core_library_that_would_load_twice_or_not_at_all_must_be_refused(tmp_path, changes, what):
    tree = make_vendor("metax", tmp_path)
    rewrite(tree, "libc10.so", **changes)
    with pytest.raises(RefusedError, match=what):
        plan_of(tree)


def test_a_grafted_core_in_torch_libs_must_be_refused(tmp_path):
    tree = make_vendor("dcu", tmp_path)
    ElfSpec(soname="libc10-52d951ec.so").write(tree.torch.parent / "torch.libs" / "libc10-52d951ec.so")
    with pytest.raises(RefusedError, match=r"grafted copy of a core library: libc10-52d951ec\.so"):
        plan_of(tree)


def test_one_grafted_file_under_two_needed_names_must_be_refused(tmp_path):
    tree = make_vendor("dcu", tmp_path)
    (tree.torch.parent / "torch.libs" / "liba.so").symlink_to(GRAFTED[0])
    rewrite(tree, "libshm.so", needed=("liba.so",))
    with pytest.raises(RefusedError, match=f"is needed under several names: {GRAFTED[0]}, liba.so"):
        plan_of(tree)


@pytest.mark.parametrize("target", ["gone", "libloop.so"], ids=["dangling", "loop"])
def test_a_link_that_leads_nowhere_must_be_refused_by_name(tmp_path, target):
    tree = make_vendor("dcu", tmp_path)
    (tree.torch.parent / "torch.libs" / "libloop.so").symlink_to(target)
    with pytest.raises(RefusedError, match=r"torch\.libs/libloop\.so is a link that leads nowhere"):
        plan_of(tree)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_regular_file_must_be_refused_and_not_opened(tmp_path, make):
    tree = make_vendor("metax", tmp_path)
    (tree.lib / "libshm.so").unlink()
    make(tree.lib / "libshm.so")
    with pytest.raises(MalformedError, match=r"libshm\.so is no regular file"):
        plan_of(tree)


def test_a_dangling_core_link_must_be_refused_and_not_pass_as_missing(tmp_path):
    tree = make_vendor("metax", tmp_path)
    (tree.lib / "libshm.so").unlink()
    (tree.lib / "libshm.so").symlink_to("gone")
    with pytest.raises(RefusedError, match=r"libshm\.so is a link that leads nowhere"):
        plan_of(tree)


def test_two_files_of_one_soname_must_be_refused(tmp_path):
    tree = make_vendor("dcu", tmp_path)
    ElfSpec(soname=GRAFTED[3]).write(tree.torch.parent / "torch.libs" / "libother.so")
    with pytest.raises(RefusedError, match=f"both answer to {GRAFTED[3]}"):
        plan_of(tree)


def test_a_text_file_under_a_librarys_name_must_be_refused(tmp_path):
    tree = make_vendor("metax", tmp_path)
    (tree.lib / "libshm.so").write_text("INPUT(libshm.so.1)")
    with pytest.raises(MalformedError, match=r"libshm\.so: not an ELF file"):
        plan_of(tree)


def test_dcu_without_torch_libs_must_be_refused(tmp_path):
    tree = make_vendor("dcu", tmp_path)
    (tree.torch.parent / "torch.libs").rename(tmp_path / "elsewhere")
    with pytest.raises(CoreLibraryMissingError, match=r"missing from .*/site-packages: torch\.libs"):
        plan_of(tree)


def test_ppu_without_mkl_must_name_the_folder_that_was_searched(tmp_path):
    tree = make_vendor("ppu", tmp_path)
    (tree.mkl / MKL[1]).unlink()
    with pytest.raises(CoreLibraryMissingError, match=f"required libraries missing from {tree.mkl}: {MKL[1]}"):
        plan_of(tree)


def test_vendor_and_stock_of_different_versions_must_be_refused(tmp_path):
    tree = make_vendor("metax", tmp_path)
    (tree.torch / "version.py").write_text(version_text("2.9.1+metax3", {}))
    with pytest.raises(VersionMismatchError, match=r"vendor torch is 2\.9\.1\+metax3, stock torch is 2\.10\.0\+cpu"):
        plan_of(tree)


def test_a_folder_that_is_no_stock_torch_must_be_refused(tmp_path):
    with pytest.raises(InputNotFoundError, match=r"stock torch: no .*libc10\.so"):
        read_stock(tmp_path, "2.10.0+cpu")
