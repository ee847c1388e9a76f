"""Device memory: statistics, peaks, the allocator's reserve, bare addresses."""

from __future__ import annotations

import gc

import pytest
import torch

pytestmark = pytest.mark.device

MEBIBYTE = 1 << 20


@pytest.fixture(autouse=True)
def _no_garbage():
    """What earlier tests left in cycles must not be freed in the middle of a measurement."""
    gc.collect()


def held(device, size=4 * MEBIBYTE):
    return torch.empty(size, dtype=torch.uint8, device=device)


def test_allocated_memory_must_follow_what_tensors_hold(device):
    before = torch.flagos.memory_allocated(device)
    value = held(device)
    assert torch.flagos.memory_allocated(device) == before + 4 * MEBIBYTE
    view = value[10:]
    del value
    assert torch.flagos.memory_allocated(device) == before + 4 * MEBIBYTE
    del view
    assert torch.flagos.memory_allocated(device) == before


def test_results_and_freed_results_must_be_counted(device):
    value = held(device)
    before = torch.flagos.memory_allocated()
    result = value + 1
    assert torch.flagos.memory_allocated() == before + 4 * MEBIBYTE
    del result
    assert torch.flagos.memory_allocated() == before


def test_peak_must_stay_until_it_is_reset(device):
    torch.flagos.reset_peak_memory_stats(device)
    start = torch.flagos.max_memory_allocated(device)
    value = held(device)
    del value
    assert torch.flagos.max_memory_allocated(device) == start + 4 * MEBIBYTE
    torch.flagos.reset_peak_memory_stats(device)
    assert torch.flagos.max_memory_allocated(device) == torch.flagos.memory_allocated(device)


def test_reserve_must_cover_what_is_allocated(device):
    value = held(device)
    assert torch.flagos.memory_reserved(device) >= torch.flagos.memory_allocated(device) >= value.nbytes
    assert torch.flagos.max_memory_reserved(device) >= torch.flagos.memory_reserved(device)


def test_emptying_the_cache_must_shrink_the_reserve_and_leave_tensors_alone(device):
    kept = torch.arange(1000.0, device=device)
    big = held(device, 64 * MEBIBYTE)
    full = torch.flagos.memory_reserved(device)
    del big
    torch.flagos.empty_cache()
    assert torch.flagos.memory_reserved(device) < full
    assert kept[-1].item() == 999


def test_statistics_must_be_named_as_those_of_cuda(device):
    value = held(device)
    flat = torch.flagos.memory_stats(device)
    for name in ("allocation", "segment", "active", "allocated_bytes", "reserved_bytes", "active_bytes"):
        for column in ("current", "peak", "allocated", "freed"):
            assert flat[f"{name}.all.{column}"] >= 0
    nested = torch.flagos.memory_stats_as_nested_dict(device)
    assert nested["allocated_bytes"]["all"]["current"] >= value.nbytes
    assert nested["num_ooms"] >= 0


def test_totals_must_begin_anew_when_reset(device):
    held(device)
    torch.flagos.reset_accumulated_memory_stats(device)
    assert torch.flagos.memory_stats(device)["allocation.all.allocated"] == 0
    held(device)
    assert torch.flagos.memory_stats(device)["allocation.all.allocated"] == 1


def test_generic_statistics_must_be_the_same(device):
    value = held(device)
    assert torch.accelerator.memory_allocated(device) == torch.flagos.memory_allocated(device) >= value.nbytes
    assert torch.accelerator.memory_reserved(device) == torch.flagos.memory_reserved(device)
    assert torch.accelerator.memory_stats(device) == torch.flagos.memory_stats(device)


def test_each_device_must_have_statistics_of_its_own(device, other_device):
    here, there = torch.flagos.memory_allocated(device), torch.flagos.memory_allocated(other_device)
    value = held(other_device)
    assert torch.flagos.memory_allocated(device) == here
    assert torch.flagos.memory_allocated(other_device) == there + value.nbytes


@pytest.mark.parametrize("abbreviated", [True, False])
def test_summary_must_be_a_table_with_the_device_and_its_bytes(device, abbreviated):
    value = held(device)
    text = torch.flagos.memory_summary(device, abbreviated=abbreviated)
    assert str(device) in text
    assert str(torch.flagos.memory_allocated(device)) in text
    assert value.nbytes
    assert ("Non-releasable" in text) is not abbreviated


def test_statistics_before_initialisation_must_be_zero(run_ok):
    program = (
        "import torch_fl, torch\n"
        "print(torch.flagos.memory_allocated(0), torch.flagos.max_memory_reserved(0))\n"
        "print(dict(torch.flagos.memory_stats(0)))\n"
        "torch.flagos.empty_cache(); print(torch.flagos.is_initialized())"
    )
    assert run_ok(program) == "0 0\n{}\nFalse\n"


def test_memory_in_use_must_be_what_is_not_free(device):
    free, total = torch.flagos.mem_get_info(device)
    assert 0 < free <= total
    assert 0 <= torch.flagos.device_memory_used(device) <= total


def test_bare_memory_must_be_counted_and_freed_once(device):
    before = torch.flagos.memory_allocated(device)
    address = torch.flagos.caching_allocator_alloc(MEBIBYTE, device)
    assert address > 0
    assert torch.flagos.memory_allocated(device) >= before + MEBIBYTE
    torch.flagos.caching_allocator_delete(address)
    assert torch.flagos.memory_allocated(device) == before
    with pytest.raises(ValueError, match="caching_allocator_alloc"):
        torch.flagos.caching_allocator_delete(address)


def test_request_beyond_all_memory_must_be_an_out_of_memory_error_and_count(device):
    before = torch.flagos.memory_stats(device)["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError, match=r"(?i)out of memory"):
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
    assert torch.flagos.memory_stats(device)["num_ooms"] == before + 1
    assert torch.ones(3, device=device).sum().item() == 3
