"""Threads: tensors shared without a lock, and a current device for each thread."""

from __future__ import annotations

import ctypes
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

pytestmark = pytest.mark.device

ROUNDS = 1500


class HostMemory(ctypes.Structure):
    """What glibc's mallinfo2 returns; `uordblks` is the bytes that the process has from malloc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def host_bytes_in_use():
    gc.collect()
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if ask is None:
        pytest.skip("glibc before 2.33 has no mallinfo2")
    ask.restype = HostMemory
    return ask().uordblks


def in_threads(work, count=2):
    """Run `work(index)` in `count` threads that start together; return the results, raise the first error."""
    barrier = threading.Barrier(count)

    def started(index):
        barrier.wait()
        return work(index)

    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(started, index) for index in range(count)]]


READS = [
    pytest.param(lambda shared, own: shared + own, id="add"),
    pytest.param(lambda shared, own: own - shared, id="sub"),
    pytest.param(lambda shared, own: shared[1:].sum() * own, id="view-sum"),
    pytest.param(lambda shared, own: torch.cat([shared, own]), id="cat"),
    pytest.param(lambda shared, own: torch.where(shared > 2, shared, own), id="where"),
]


@pytest.mark.parametrize("read", READS)
def test_two_threads_reading_one_tensor_must_both_be_right(device, read):
    shared = torch.arange(6.0, device=device)
    own = [torch.full((6,), float(index + 1)) for index in range(2)]
    expected = [read(shared.cpu(), value) for value in own]

    def work(index):
        mine = own[index].to(device)
        results = [read(shared, mine) for _ in range(ROUNDS)]
        return all(result.device == device for result in results), results[-1].cpu()

    for (on_device, last), right in zip(in_threads(work), expected, strict=True):
        assert on_device
        assert torch.equal(last, right)
    assert shared.device == device


def test_threads_using_one_model_must_agree(device):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
    source = torch.randn(4, 8).to(device)
    with torch.no_grad():
        expected = model(source)

    def work(_index):
        with torch.no_grad():
            return all(torch.allclose(model(source), expected) for _ in range(100))

    assert in_threads(work, 4) == [True] * 4


def test_backward_in_threads_must_give_each_its_gradients(device):
    weight = torch.full((5,), 3.0, device=device)

    def work(index):
        x = torch.full((5,), float(index + 1), device=device, requires_grad=True)
        for _ in range(100):
            x.grad = None
            (x * x * weight).sum().backward()
        return x.grad.tolist()

    assert in_threads(work, 3) == [[6.0] * 5, [12.0] * 5, [18.0] * 5]


def test_current_device_must_be_each_threads_own(device, other_device):
    def work(index):
        chosen = (device, other_device)[index]
        torch.flagos.set_device(chosen)
        return all(torch.empty(1, device="flagos").device == chosen for _ in range(200))

    assert in_threads(work) == [True, True]
    assert torch.flagos.current_device() == device.index


def test_tensor_made_in_a_thread_must_outlive_it(device):
    made = in_threads(lambda index: torch.full((4,), float(index), device=device))
    assert [tensor.tolist() for tensor in made] == [[0.0] * 4, [1.0] * 4]


def test_threads_drawing_from_generators_of_their_own_must_repeat(device):
    def work(index):
        generator = torch.Generator(device=device).manual_seed(index)
        return [torch.rand(8, device=device, generator=generator).cpu() for _ in range(50)]

    first, second = in_threads(work), in_threads(work)
    for one, other in zip(first, second, strict=True):
        assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))
    assert not torch.equal(first[0][0], first[1][0])


def test_allocating_and_freeing_in_threads_must_keep_values_apart(device):
    def work(index):
        good = True
        for round_ in range(300):
            mine = torch.full((64,), float(index * 1000 + round_), device=device)
            good = good and bool((mine == index * 1000 + round_).all())
        return good

    assert in_threads(work, 4) == [True] * 4


def test_results_freed_by_threads_that_end_must_leave_no_memory_behind(device):
    def free_in_threads(count):
        for _ in range(count):
            results = [torch.empty(1, device=device) for _ in range(600)]
            thread = threading.Thread(target=results.clear)
            thread.start()
            thread.join()
            assert not results

    free_in_threads(10)
    before = host_bytes_in_use()
    free_in_threads(100)
    # A thread keeps the StorageImpls, of about 100 bytes, of some results that it freed; all of them would be 6 MB.
    assert host_bytes_in_use() - before < 1_000_000
