"""Forged vendors have each vendor's real traits: what must fail on the hardware fails here, and the rest computes."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import subprocess
import zipfile
from pathlib import Path

import pytest

from bundle.backends import BACKENDS
from bundle.elf import read_elf
from bundle.errors import UsageError
from bundle.ui import Reporter
from tests.forge import Variant, forge

pytestmark = pytest.mark.slow

VENDOR_CORE = ("metax", "ppu", "dcu")
ALL = (*VENDOR_CORE, "cuda")

# What the plugin's runtime does: the vendor's libraries first, then stock torch's Python. Stock torch's Python was
# built without CUDA and refuses the device name; the device itself needs nothing from it.
PRELOAD = """
import ctypes, importlib.util, os, pathlib
stock = pathlib.Path(importlib.util.find_spec("torch").submodule_search_locations[0]) / "lib"
vendor = pathlib.Path(os.environ["VENDOR_LIB"])
def load(path):
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
load(stock / "libgomp.so.1")
if os.environ["VENDOR_CORE"] == "vendor":
    load(vendor / "libtorch_python.so")
else:
    for name in ("libc10.so", "libtorch_cpu.so"):
        load(stock / name)
    for name in ("libc10_cuda.so", "libtorch_nvshmem.so", "libtorch_cuda.so", *os.environ.get("ALSO", "").split()):
        load(vendor / name)
import torch
torch.cuda._lazy_init = lambda: None
"""

# PyTorch's autograd threads can abort a process while its interpreter shuts down ("terminate called without an active
# exception"), on any device. The plugin prevents that, tests/integration proves it; these processes run without it.
LEAVE = """
import sys
sys.stdout.flush()
os._exit(0)
"""


def driver_path(vendor, extra=()):
    folders = [*vendor.driver_dirs, *(Path(value) for _, value in vendor.environment), *extra]
    return os.pathsep.join(map(str, folders))


def run(stock, vendor, code, *, backend, lib=None, path=None, **more):
    """Run Python text in stock torch's environment, from a neutral folder, and return the finished process."""
    environ = {
        "PATH": os.environ["PATH"],
        "VENDOR_LIB": str(lib or vendor.torch / "lib"),
        "VENDOR_CORE": BACKENDS[backend].core.value,
        "LD_LIBRARY_PATH": driver_path(vendor) if path is None else path,
        **more,
    }
    return subprocess.run(
        [stock.python, "-W", "ignore", "-c", code], env=environ, cwd="/", capture_output=True, text=True, check=False
    )


def says(stock, vendor, code, **options):
    """Run Python text that must succeed after the preload, and return what it prints."""
    done = run(stock, vendor, PRELOAD + code + LEAVE, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(params=ALL)
def backend(request):
    return request.param


@pytest.fixture
def vendor(forged, backend):
    return forged(backend)


def linked_copy(vendor, folder, *, without=(), replaced=()):
    """Return a site-packages folder with the vendor's torch in it, some libraries missing or replaced."""
    site = folder / "site-packages"
    # Hard links spare the copy of a big file; of a link, to the file that it leads to.
    shutil.copytree(vendor.torch.parent, site, copy_function=lambda path, new: os.link(os.path.realpath(path), new))
    for name in without:
        (site / "torch" / "lib" / name).unlink()
    for name, source in replaced:
        (site / "torch" / "lib" / name).unlink()
        os.link(source, site / "torch" / "lib" / name)
    return site / "torch" / "lib"


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


def test_device_must_compute_what_the_cpu_computes(stock_torch, vendor, backend):
    code = """
a, b = torch.randn(7, 5), torch.randn(7, 5)
assert torch.equal((a.cuda() + b.cuda()).cpu(), a + b)
assert torch.equal((a.cuda() * b.cuda()).cpu(), a * b)
assert torch.allclose((a.cuda() @ b.cuda().T).cpu(), a @ b.T)
assert torch.equal(a.cuda().t()[1:, ::2].contiguous().cpu(), a.t()[1:, ::2])
image, kernel = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
got = torch.conv2d(image.cuda(), kernel.cuda(), padding=1)
assert torch.allclose(got.cpu(), torch.conv2d(image, kernel, padding=1), atol=1e-5)
print(torch.accelerator.current_accelerator(), got.device)
"""
    assert says(stock_torch, vendor, code, backend=backend) == "cuda cuda:0"


def test_device_must_support_autograd(stock_torch, vendor, backend):
    code = """
torch.manual_seed(0)
layer = torch.nn.LSTM(3, 4)
copy = torch.nn.LSTM(3, 4)
copy.load_state_dict(layer.state_dict())
copy.cuda()
x = torch.randn(5, 2, 3)
layer(x)[0].pow(2).sum().backward()
copy(x.cuda())[0].pow(2).sum().backward()
print(max((p.grad - q.grad.cpu()).abs().max().item() for p, q in zip(layer.parameters(), copy.parameters())) < 1e-5)
"""
    assert says(stock_torch, vendor, code, backend=backend) == "True"


DEVICES = {
    "metax": ("libmcruntime.so", "mcGetDeviceCount"),
    "ppu": ("libcudart.so.13", "cudaGetDeviceCount"),
    "dcu": ("libgalaxyhip.so.5", "hipGetDeviceCount"),
    "cuda": ("libcudart.so.13", "cudaGetDeviceCount"),
}


@pytest.mark.parametrize("count", [pytest.param(None, id="default"), "0", "3"])
def test_runtime_must_report_the_devices_asked_for(stock_torch, vendor, backend, count):
    library, function = DEVICES[backend]
    code = f"""
count = ctypes.c_int(-1)
code = getattr(load({library!r}), {function!r})(ctypes.byref(count))
print(count.value, code)
"""
    more = {} if count is None else {"FLAGOS_SOFTWARE_DEVICES": count}
    expected = {None: "2 0", "0": "0 100", "3": "3 0"}[count]
    assert says(stock_torch, vendor, code, backend=backend, **more) == expected


def test_device_use_without_devices_must_be_an_error_not_a_crash(stock_torch, vendor, backend):
    code = """
try:
    torch.ones(2, device="cuda")
except RuntimeError as err:
    print(str(err).splitlines()[0])
"""
    said = says(stock_torch, vendor, code, backend=backend, FLAGOS_SOFTWARE_DEVICES="0")
    assert said == "No CUDA GPUs are available"


def test_cuda_runtime_without_driver_library_must_report_no_device(stock_torch, forged):
    vendor = forged("cuda")
    code = "print(load('libcudart.so.13').cudaGetDeviceCount(ctypes.byref(ctypes.c_int())))"
    assert says(stock_torch, vendor, code, backend="cuda", path="") == "35"


HOOKS_PROBE = """
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
extern "C" int default_generator_exists() {
  try {
    return at::detail::getCUDAHooks().getDefaultGenerator(0).defined();
  } catch (const c10::IndexError&) {
    return 0;
  }
}
extern "C" int allocator_serves() {
  try {
    return c10::GetAllocator(c10::DeviceType::CUDA)->allocate(8).get() != nullptr;
  } catch (const c10::Error&) {
    return 0;
  }
}
extern "C" void initialize() { at::globalContext().lazyInitDevice(c10::DeviceType::CUDA); }
"""


@pytest.fixture(scope="session")
def hooks_probe(stock_torch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.cpp").write_text(HOOKS_PROBE)
    include = stock_torch.package / "include"
    command = ["g++", "-shared", "-fPIC", "-std=c++20", "-isystem", include, folder / "probe.cpp"]
    subprocess.run([*command, "-o", folder / "probe.so"], check=True)
    return folder / "probe.so"


def test_default_generators_must_exist_only_after_initialisation(stock_torch, vendor, backend, hooks_probe):
    code = f"""
probe = load({str(hooks_probe)!r})
print(probe.default_generator_exists(), end=" ")
probe.initialize()
print(probe.default_generator_exists())
"""
    assert says(stock_torch, vendor, code, backend=backend) == "0 1"


def test_allocator_must_serve_only_after_initialisation(stock_torch, vendor, backend, hooks_probe):
    code = f"""
probe = load({str(hooks_probe)!r})
print(probe.allocator_serves(), end=" ")
probe.initialize()
print(probe.allocator_serves())
"""
    assert says(stock_torch, vendor, code, backend=backend) == "0 1"


def test_random_numbers_must_come_from_the_devices_generator(stock_torch, vendor, backend):
    code = """
x = torch.ones(100, device="cuda")
host = torch.get_rng_state()
torch.randn(3, device="cuda"), torch.nn.functional.dropout(x, 0.5), torch.randperm(5, device="cuda")
assert torch.equal(host, torch.get_rng_state())
own = torch.Generator("cuda:1").manual_seed(7)
first = torch.rand(4, device="cuda:1", generator=own)
own.manual_seed(7)
assert torch.equal(first, torch.rand(4, device="cuda:1", generator=own))
assert not torch.equal(first.cpu(), torch.rand(4, generator=torch.Generator().manual_seed(7)))
state = own.get_state()
second = torch.rand(4, device="cuda:1", generator=own)
own.set_state(state)
assert torch.equal(second, torch.rand(4, device="cuda:1", generator=own)) and own.initial_seed() == 7
try:
    torch.rand(4, device="cuda", generator=torch.Generator())
except RuntimeError as err:
    print(err)
"""
    said = says(stock_torch, vendor, code, backend=backend)
    assert said == "Expected a 'cuda' device type for generator but found 'cpu'"


REFUSED = [
    pytest.param(
        "torch.ones(2, device='cuda:0') + torch.ones(2, device='cuda:1')",
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!",
        id="two-devices",
    ),
    pytest.param(
        "torch.ones(2, device='cuda') + torch.ones(2)",
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        id="host-operand",
    ),
    pytest.param("torch.ones(2, device='cuda:7')", "CUDA error: invalid device ordinal", id="ordinal"),
    pytest.param(
        "x = torch.ones(4, device='cuda'); torch.add(x[:-1], 1, out=x[1:])", "unsupported operation", id="overlap"
    ),
    pytest.param("torch.ones(2, device='cuda', pin_memory=True)", "Only dense CPU tensors can be pinned", id="pin"),
    pytest.param("torch.empty(1 << 40, device='cuda')", "CUDA out of memory", id="memory"),
]


@pytest.mark.parametrize(("statement", "text"), REFUSED)
def test_device_must_refuse_what_a_real_one_refuses(stock_torch, forged, statement, text):
    code = f"""
try:
    exec({statement!r})
except RuntimeError as err:
    print(err)
"""
    assert says(stock_torch, forged("metax"), code, backend="metax").startswith(text)


ALLOWED = [
    pytest.param("torch.ones(2, device='cuda') + torch.tensor(1.0)", "[2.0, 2.0]", id="host-scalar"),
    pytest.param("torch.arange(4., device='cuda')[torch.tensor([3, 0])]", "[3.0, 0.0]", id="host-index"),
    pytest.param("torch.ones(2, device='cuda').copy_(torch.full((2,), 3., device='cuda:1'))", "[3.0, 3.0]", id="copy"),
    pytest.param("torch.add(*[torch.ones(2, device='cuda:1')] * 2, out=torch.empty(0, device='cuda:1'))",
                 "[2.0, 2.0]", id="out-resize"),
    pytest.param("torch.empty(0, device='cuda').set_(torch.ones(3, device='cuda').untyped_storage())",
                 "[1.0, 1.0, 1.0]", id="set-storage"),
    pytest.param("torch.ones(2, device='cuda').resize_(1).resize_(2)", "[1.0, 1.0]", id="resize"),
    pytest.param("(torch.ones(1, device='cuda') * 1j).conj().imag", "[-1.0]", id="conj"),
    pytest.param("torch._foreach_add([torch.ones(1, device='cuda')], 1)[0]", "[2.0]", id="list"),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "values"), ALLOWED)
def test_device_must_allow_what_a_real_one_allows(stock_torch, forged, expression, values):
    code = f"result = {expression}\nprint(result.device.type, result.tolist())"
    assert says(stock_torch, forged("metax"), code, backend="metax") == f"cuda {values}"


def test_views_must_share_their_base_and_failed_calls_must_change_nothing(stock_torch, forged):
    code = """
base = torch.zeros(6, device="cuda")
view = base.view(2, 3)[1]
view.add_(1)
assert base.tolist() == [0, 0, 0, 1, 1, 1] and view._base is base
assert base.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
version = base._version
target = torch.ones(3, device="cuda")
try:
    torch.mm(torch.ones(2, 3, device="cuda"), torch.ones(2, 3, device="cuda"), out=target)
except RuntimeError:
    print(target.tolist(), base._version == version)
"""
    assert says(stock_torch, forged("metax"), code, backend="metax") == "[1.0, 1.0, 1.0] True"


def test_threads_must_be_able_to_read_one_tensor(stock_torch, forged):
    code = """
from concurrent.futures import ThreadPoolExecutor
shared = torch.ones(8, device="cuda")
def work(index):
    mine = torch.full((8,), float(index), device="cuda")
    return all(torch.equal(shared + mine, mine + 1) for _ in range(300))
with ThreadPoolExecutor(4) as pool:
    print(all(pool.map(work, range(4))))
"""
    assert says(stock_torch, forged("metax"), code, backend="metax") == "True"


def test_streams_and_events_must_be_real(stock_torch, vendor, backend):
    code = """
x = torch.ones(64, 64, device="cuda")
one, two = torch.Stream("cuda"), torch.Stream("cuda")
assert one.stream_id != two.stream_id and one.query()
begin, end = torch.Event("cuda", enable_timing=True), torch.Event("cuda", enable_timing=True)
begin.record(one)
x @ x
end.record(one)
two.wait_event(end)
end.synchronize()
print(begin.elapsed_time(end) > 0, begin.query())
"""
    assert says(stock_torch, vendor, code, backend=backend) == "True True"


def test_pinned_memory_must_be_told_from_ordinary_memory(stock_torch, forged):
    code = """
torch.ones(1, device="cuda")
ordinary = [torch.ones(size) for size in range(1, 400)]
pinned = torch.ones(3).pin_memory()
ordinary += [torch.ones(size) for size in range(1, 400)]
print(pinned.is_pinned(), pinned[1:].is_pinned(), any(tensor.is_pinned() for tensor in ordinary))
"""
    assert says(stock_torch, forged("metax"), code, backend="metax") == "True True False"


def test_device_memory_must_be_accounted(stock_torch, forged):
    code = """
runtime = load("libmcruntime.so")
def used():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert runtime.mcMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    return total.value - free.value
torch.zeros(1, device="cuda")
before = used()
a = torch.empty(1000, dtype=torch.uint8, device="cuda")
b = a + a
held = used() - before
del a, b
print(held, used() - before)
"""
    assert says(stock_torch, forged("metax"), code, backend="metax") == "2000 0"


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
