"""The software device computes, and refuses, what a real one does."""

from __future__ import annotations

import subprocess

import pytest

from tests.e2e.forging import says

pytestmark = pytest.mark.slow


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
