"""Forged vendors have each vendor's real traits: what must fail on the hardware fails here."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import zipfile
from pathlib import Path

import pytest

from bundle.backends import BACKENDS
from bundle.elf import read_elf
from bundle.errors import UsageError
from bundle.ui import Reporter
from tests.e2e.forging import PRELOAD, VENDOR_CORE, driver_path, linked_copy, run, says
from tests.forge import Variant, forge

pytestmark = pytest.mark.slow


def test_forged_torch_must_hold_every_library_of_the_backend(vendor, backend):
    lib = vendor.torch / "lib"
    names = [library.name for library in BACKENDS[backend].libraries]
    assert [name for name in names if not (lib / name).is_file()] == []


def test_forged_torch_libraries_must_have_their_file_name_as_soname(vendor, backend):
    lib = vendor.torch / "lib"
    sonames = {library.name: read_elf(lib / library.name).soname for library in BACKENDS[backend].libraries}
    assert sonames == {name: name for name in sonames}


def test_forged_torch_must_be_marked_as_the_vendors(vendor, backend):
    text = (vendor.torch / "version.py").read_text()
    assert all(mark in text for mark in BACKENDS[backend].marked_by[:1])


def test_forged_libraries_must_not_name_the_build_machine(vendor, stock_torch):
    needles = [str(Path(__file__).parents[2]).encode(), str(stock_torch.package).encode()]
    own = [*(vendor.torch / "lib").glob("libc10_*.so"), *(vendor.torch / "lib").glob("libtorch_[chn]*.so")]
    own += [path for path in vendor.sdk_root.rglob("*.so*") if path.is_file()]
    core = vendor.torch / "lib" / "libtorch_cpu.so"
    assert [path for path in own if path != core and any(needle in path.read_bytes() for needle in needles)] == []


@pytest.mark.parametrize("name", VENDOR_CORE)
def test_core_must_need_the_device_library_as_gpu_builds_do(forged, name):
    lib = forged(name).torch / "lib"
    device = BACKENDS[name].probe
    assert all(device in read_elf(lib / core).needed for core in ("libtorch.so", "libtorch_python.so"))


def test_ppu_core_without_mkl_must_not_load(stock_torch, forged):
    vendor = forged("ppu")
    path = os.pathsep.join(map(str, vendor.driver_dirs))
    done = run(stock_torch, vendor, PRELOAD, backend="ppu", path=path)
    assert "libmkl_core.so.1: cannot open shared object file" in done.stderr


def test_metax_device_on_stock_core_must_miss_the_forks_symbols(stock_torch, forged, tmp_path):
    vendor = forged("metax")
    stock_core = stock_torch.package / "lib" / "libtorch_cpu.so"
    shutil.copy2(stock_core, tmp_path / "libtorch_cpu.so")
    lib = linked_copy(vendor, tmp_path, replaced=[("libtorch_cpu.so", tmp_path / "libtorch_cpu.so")])
    done = run(stock_torch, vendor, PRELOAD, backend="metax", lib=lib)
    assert "undefined symbol: _ZN2at4maca" in done.stderr


def test_dcu_device_on_stock_core_must_miss_the_forks_symbols(stock_torch, forged, tmp_path):
    vendor = forged("dcu")
    stock_core = stock_torch.package / "lib" / "libtorch_cpu.so"
    shutil.copy2(stock_core, tmp_path / "libtorch_cpu.so")
    lib = linked_copy(vendor, tmp_path, replaced=[("libtorch_cpu.so", tmp_path / "libtorch_cpu.so")])
    path = driver_path(vendor, [vendor.torch.parent / "torch.libs"])
    done = run(stock_torch, vendor, PRELOAD, backend="dcu", lib=lib, path=path)
    assert "undefined symbol: _ZN2at4_ops2" in done.stderr


def test_dcu_without_nvrtc_must_fail_at_initialisation(stock_torch, forged, tmp_path):
    vendor = forged("dcu")
    lib = linked_copy(vendor, tmp_path, without=["libcaffe2_nvrtc.so"])
    code = """
try:
    torch.ones(1, device="cuda")
except RuntimeError as err:
    print(str(err).splitlines()[0])
"""
    said = says(stock_torch, vendor, code, backend="dcu", lib=lib)
    assert said.startswith("Error in dlopen: libcaffe2_nvrtc.so: cannot open shared object file")


def test_dcu_must_graft_seventeen_libraries_five_of_them_needed_directly(forged):
    vendor = forged("dcu")
    grafted = {path.name: path for path in (vendor.torch.parent / "torch.libs").iterdir()}
    direct = grafted.keys() & set(read_elf(vendor.torch / "lib" / "libtorch_cpu.so").needed)
    reached, waiting = set(), set(direct)
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= grafted.keys() & set(read_elf(grafted[name].resolve()).needed) - reached
    links = [name for name, path in grafted.items() if path.is_symlink()]
    outside = grafted[links[0]].resolve().parent
    assert (len(grafted), len(direct), reached, len(links)) == (17, 5, set(grafted), 1)
    assert outside.is_relative_to(vendor.sdk_root.parent)
    assert outside != vendor.torch.parent / "torch.libs"


def test_dcu_cuda_shim_must_see_the_state_of_the_hip_runtime(stock_torch, forged):
    vendor = forged("dcu")
    code = """
hip, cuda, device = load("libgalaxyhip.so.5"), load("libcudart.so.12"), ctypes.c_int(-1)
assert hip.hipSetDevice(1) == 0 and cuda.cudaGetDevice(ctypes.byref(device)) == 0
print(device.value)
"""
    assert says(stock_torch, vendor, code, backend="dcu") == "1"


def test_ppu_bmm_of_1x1x1_must_kill_the_process(stock_torch, forged):
    code = "x = torch.ones(1, 1, 1, device='cuda'); torch.bmm(x, x)"
    done = run(stock_torch, forged("ppu"), PRELOAD + code, backend="ppu")
    assert done.returncode == -signal.SIGABRT
    assert "bmm kernel does not survive" in done.stderr


def test_ppu_bmm_of_other_shapes_must_be_right(stock_torch, forged):
    code = "x = torch.ones(2, 2, 2, device='cuda'); print(torch.bmm(x, x).unique().tolist())"
    assert says(stock_torch, forged("ppu"), code, backend="ppu") == "[2.0]"


@pytest.mark.parametrize(
    ("also", "expected"),
    [
        pytest.param("", "Error in dlopen: libtorch_cuda_linalg.so: cannot open shared object file", id="missing"),
        pytest.param("libtorch_cuda_linalg.so", "True", id="loaded-before"),
    ],
)
def test_cuda_linear_algebra_must_be_opened_by_bare_name(stock_torch, forged, also, expected):
    code = """
x = torch.randn(4, 4)
try:
    print(torch.allclose(torch.linalg.svdvals(x.cuda()).cpu(), torch.linalg.svdvals(x), atol=1e-5))
except RuntimeError as err:
    print(str(err).splitlines()[0])
"""
    assert says(stock_torch, forged("cuda"), code, backend="cuda", ALSO=also).startswith(expected)


def test_cuda_libraries_must_find_the_runtime_by_dt_rpath(forged):
    info = read_elf(forged("cuda").torch / "lib" / "libc10_cuda.so")
    assert (info.rpath, info.runpath) == (("$ORIGIN/../../nvidia/cu13/lib", "$ORIGIN"), ())


def test_cuda_nvshmem_must_use_a_library_that_it_does_not_need(forged):
    assert "libc10_cuda.so" not in read_elf(forged("cuda").torch / "lib" / "libtorch_nvshmem.so").needed


def test_cuda_runtime_wheel_must_hold_what_its_record_says(forged):
    vendor = forged("cuda")
    (wheel,) = vendor.find_links.glob("*.whl")
    (metadata,) = vendor.torch.parent.glob("torch-*.dist-info/METADATA")
    with zipfile.ZipFile(wheel) as archive:
        record = next(name for name in archive.namelist() if name.endswith("/RECORD"))
        rows = [line.split(",") for line in archive.read(record).decode().splitlines()]
        digests = {
            name: "sha256="
            + base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
            for name in archive.namelist()
            if name != record
        }
    assert {name: digest for name, digest, _ in rows if name != record} == digests
    assert "nvidia/cu13/lib/libcudart.so.13" in digests
    assert 'Requires-Dist: nvidia-flagos-software==1.0; platform_system == "Linux"' in metadata.read_text()


def test_bare_metax_must_hold_eight_libraries_and_compute(stock_torch, forged, tmp_path):
    vendor = forged("metax", Variant.BARE)
    names = {path.name for path in vendor.torch.rglob("*") if path.is_file()}
    code = "print((torch.ones(2, device='cuda') + 1).tolist())"
    # As a bundle does: stock torch's libshm serves, and nothing else of stock's.
    shutil.copy2(stock_torch.package / "lib" / "libshm.so", tmp_path)
    path = driver_path(vendor, [tmp_path])
    assert len(names) == 8
    assert not names & {"libshm.so", "version.py"}
    assert says(stock_torch, vendor, code, backend="metax", path=path) == "[2.0, 2.0]"


def test_bare_variant_must_be_refused_for_vendors_not_seen_without_version_file(stock_torch, tmp_path):
    with pytest.raises(UsageError, match="dcu: no bare lib folder is known of this vendor, only of metax"):
        forge(BACKENDS["dcu"], stock=stock_torch.package, out=tmp_path, ui=Reporter(), variant=Variant.BARE)


def test_second_forge_must_reuse_and_leave_stock_torch_alone(stock_torch, forged, forge_again):
    lib = stock_torch.package / "lib"
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_nlink) for path in lib.iterdir()}
    first = forged("metax")
    made = (first.torch / "lib" / "libtorch_cuda.so").stat().st_mtime_ns
    assert forge_again("metax", first.sdk_root.parent) == first
    assert (first.torch / "lib" / "libtorch_cuda.so").stat().st_mtime_ns == made
    assert {path.name: (path.stat().st_mtime_ns, path.stat().st_nlink) for path in lib.iterdir()} == before


def test_forge_must_start_clean_after_an_interrupted_run(forged, forge_again, tmp_path):
    out = tmp_path / "metax"
    leftover = tmp_path / "metax.partial" / "site-packages" / "torch" / "lib" / "libleftover.so"
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(b"half")
    shutil.copytree(forged("metax").sdk_root.parents[1] / "_cache", tmp_path / "_cache")
    made = forge_again("metax", out)
    assert not (made.torch / "lib" / leftover.name).exists()
    assert not leftover.exists()
