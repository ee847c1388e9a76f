"""The runtime's pure parts: memory maps, ELF headers, the plan, version fields, the records' shape."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import sys
from pathlib import Path

import pytest

from bundle.elf import read_elf
from tests.support.fake_torch import CORE, DEVICE, MACHINE, complete_site
from tests.support.tiny_elf import ElfSpec
from torch_fl_boot.elf import MACHINES, NotElfError, index_library, read_dynamic
from torch_fl_boot.errors import FlagosImportError, MixedCoreError
from torch_fl_boot.manifest import read_build_record, read_manifest
from torch_fl_boot.maps import copies_of, mapped_libraries
from torch_fl_boot.origin import check_origins
from torch_fl_boot.plan import plan_preload
from torch_fl_boot.preflight import check_target
from torch_fl_boot.relink.journal import BACKUP, STAGE
from torch_fl_boot.stock import RELINK_TRACES, StockTorch, base_version
from torch_fl_boot.version import fields_to_restore

MAPS = """\
55d0c0000000-55d0c0001000 r--p 00000000 fe:00 1234                       /usr/bin/python3.12
7f00a0000000-7f00a0001000 r--p 00000000 fe:00 2001                       /site packages/torch_fl/lib_x/libc10.so
7f00a0001000-7f00a0002000 r-xp 00001000 fe:00 2001                       /site packages/torch_fl/lib_x/libc10.so
7f00b0000000-7f00b0001000 r--p 00000000 fe:00 2002                       /site/torch/lib/libc10.so (deleted)
7f00c0000000-7f00c0001000 r--p 00000000 fe:00 2003                       /usr/lib/libgomp.so.1.0.0
7f00d0000000-7f00d0001000 rw-p 00000000 00:01 2004                       /memfd:torch_fl_preload (deleted)
7f00e0000000-7f00e0001000 rw-p 00000000 00:00 0
7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0                          [stack]
"""
MACHINE_NUMBER = {name: number for number, name in MACHINES.items()}[MACHINE]


def test_maps_must_give_each_library_with_all_its_paths():
    assert mapped_libraries(MAPS) == {
        "libc10.so": ("/site packages/torch_fl/lib_x/libc10.so", "/site/torch/lib/libc10.so"),
        "libgomp.so.1.0.0": ("/usr/lib/libgomp.so.1.0.0",),
    }


def test_maps_must_split_at_line_feeds_alone_and_undo_what_the_kernel_escapes():
    name = rb"/a\x0cb/\x85 \u2028/x\012y\rz/libc10.so".decode("unicode_escape").replace("\n", r"\012")
    maps = f"7f00-7f01 r-xp 0 0:1 1   {name}\n7f01-7f02 r-xp 0 0:1 1   /other/libc10.so\n"
    assert mapped_libraries(maps)["libc10.so"] == tuple(sorted(("/other/libc10.so", name.replace(r"\012", "\n"))))


def test_maps_of_this_process_must_hold_its_libc():
    assert any(name.startswith(("libc.so", "libc-2")) for name in mapped_libraries())


def test_mangled_copy_must_count_as_the_library():
    mapped = {"libc10-52d951ec.so": ("/b",), "libc10.so": ("/a",), "libc10_cuda.so": ("/c",)}
    assert copies_of(["libc10.so"], mapped) == {"libc10.so": ("/a", "/b")}


def test_global_deps_twice_must_be_allowed_and_libc10_twice_must_not():
    origins = {name: Path("/bundle") / name for name in ("libc10.so", "libtorch_global_deps.so")}
    deps = ("/bundle/libtorch_global_deps.so", "/torch/lib/libtorch_global_deps.so")
    check_origins(origins, {"libc10.so": ("/bundle/libc10.so",), "libtorch_global_deps.so": deps})
    with pytest.raises(MixedCoreError, match="/torch/lib/libc10"):
        check_origins(origins, {"libc10.so": ("/torch/lib/libc10.so",)})


def test_header_reader_must_agree_with_the_build_tools(tmp_path):
    spec = ElfSpec(soname="libx.so.1", needed=("liba.so", "libb.so.2"), runpath="$ORIGIN", machine=MACHINE)
    path = spec.write(tmp_path / "libx.so.1")
    ours, theirs = read_dynamic(path), read_elf(path)
    assert (ours.soname, ours.needed) == (theirs.soname, theirs.needed)
    assert MACHINES[ours.machine] == MACHINE


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "not a 64-bit little-endian ELF file", id="empty"),
        pytest.param(b"\x7fELF\x01\x01\x01" + bytes(60), "not a 64-bit little-endian ELF file", id="32-bit"),
        pytest.param(b"\x7fELF\x02\x01\x01" + bytes(20), "unpack requires a buffer of 64 bytes", id="cut-header"),
        pytest.param(b"\x7fELF\x02\x01\x01" + bytes(57), "no dynamic section", id="no-segments"),
    ],
)
def test_damaged_header_must_be_named(tmp_path, data, why):
    path = tmp_path / "libx.so"
    path.write_bytes(data)
    with pytest.raises(NotElfError, match=why):
        read_dynamic(path)


def test_unterminated_string_must_be_refused(tmp_path):
    data = index_library(["libx.so"], machine=MACHINE_NUMBER)
    path = tmp_path / "libx.so"
    path.write_bytes(data.removesuffix(b"\0") + b"x")
    with pytest.raises(NotElfError, match="unterminated"):
        read_dynamic(path)


def test_index_library_must_be_a_sound_elf_file_without_an_executable_stack(tmp_path):
    path = tmp_path / "index.so"
    path.write_bytes(index_library(["/a/liba.so", "libb.so"], machine=MACHINE_NUMBER, runpath="/x:/y"))
    found = read_elf(path)
    assert (found.needed, found.runpath, found.soname) == (("/a/liba.so", "libb.so"), ("/x", "/y"), None)
    assert read_dynamic(path).needed == found.needed


def test_index_library_must_open_all_or_nothing(tmp_path, make_elf):
    good = make_elf("libgood_index.so", machine=MACHINE)
    bad = make_elf("libbad_index.so", machine=MACHINE, undefined=("nowhere_defined",))
    path = tmp_path / "index.so"
    path.write_bytes(index_library([str(good), str(bad)], machine=MACHINE_NUMBER))
    with pytest.raises(OSError, match="undefined symbol: nowhere_defined"):
        ctypes.CDLL(str(path), mode=os.RTLD_LOCAL)
    assert "libgood_index.so" not in mapped_libraries()


def test_libgomp_of_a_repaired_stock_wheel_must_be_found_by_its_soname(tmp_path):
    site = complete_site(tmp_path)
    grafted = site.library(site.root / "torch.libs/libgomp-01234567.so.1.0.0", soname="libgomp.so.1")
    (site.torch_lib / "libgomp.so.1").unlink()
    package = site.root / "torch_fl"
    manifest = read_manifest(package, read_build_record(package))
    assert manifest is not None
    plan = plan_preload(manifest, site.bundle, StockTorch(package=site.root / "torch", version="2.10.0+cpu"), {})
    assert plan.borrowed == (grafted,)
    assert [step.path.name for step in plan.steps if step.optional] == ["libcaffe2_nvrtc.so"]
    assert {step.path.name: step.driver for step in plan.steps if step.driver} == {
        "libc10_cuda.so": ("libdriver.so.5",),
        "libcaffe2_nvrtc.so": ("libdrivercore.so.1",),
    }
    assert plan.origins["libc10.so"] == site.bundle / "libc10.so"
    assert set(plan.origins) == {*CORE, *DEVICE, "libcaffe2_nvrtc.so"}


@pytest.mark.parametrize(
    ("fields", "live", "environ", "expected"),
    [
        pytest.param({"cuda": "12.8"}, {"cuda": None}, {}, {"cuda": "12.8"}, id="empty-is-set"),
        pytest.param({"cuda": "12.8"}, {"cuda": "13.0"}, {}, {}, id="live-value-stays"),
        pytest.param({"rocm": "6.3"}, {}, {}, {"rocm": "6.3"}, id="unknown-to-an-older-torch"),
        pytest.param({"hip": "6.3"}, {}, {"FLAGOS_DCU_HIP_VERSION": "6.4"}, {"hip": "6.4"}, id="overridden"),
        pytest.param({"hip": "6.3"}, {}, {"FLAGOS_DCU_HIP_VERSION": ""}, {"hip": "6.3"}, id="empty-override"),
        pytest.param({"cuda": "1"}, {}, {"FLAGOS_DCU_HIP_VERSION": "6.4"}, {"cuda": "1"}, id="no-hip-in-this-bundle"),
    ],
)
def test_version_fields_must_follow_vendor_live_value_and_override(fields, live, environ, expected):
    assert fields_to_restore(fields, live, environ) == expected


@pytest.mark.parametrize("tag", [f"cp{''.join(map(str, sys.version_info[:2]))}", "{}.{}".format(*sys.version_info)])
def test_both_spellings_of_the_python_tag_must_be_understood(tmp_path, tag):
    site = complete_site(tmp_path)
    check_target(dataclasses.replace(read_build_record(site.root / "torch_fl"), python=tag))


def test_every_refusal_must_be_an_import_error_of_this_package():
    error = FlagosImportError("it broke", hint="mend it")
    assert isinstance(error, ImportError)
    assert (str(error), error.name, error.hint) == ("it broke\nhint: mend it", "torch_fl", "mend it")


def test_base_version_must_drop_the_label():
    assert [base_version(version) for version in ("2.10.0+cpu", "2.10.0")] == ["2.10.0", "2.10.0"]


def test_traces_of_a_relink_must_be_those_that_it_leaves():
    assert (BACKUP, STAGE) == RELINK_TRACES
