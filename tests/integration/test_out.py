"""`out=`: undersized, oversized, of another dtype, non-contiguous, overlapping."""

from __future__ import annotations

import warnings

import pytest
import torch

pytestmark = pytest.mark.device

CALLS = [
    pytest.param(lambda x, out: torch.add(x, x, out=out), id="add"),
    pytest.param(lambda x, out: torch.mul(x, 2, out=out), id="mul-scalar"),
    pytest.param(lambda x, out: torch.mm(x, x.t(), out=out), id="mm"),
    pytest.param(lambda x, out: torch.exp(x, out=out), id="exp"),
    pytest.param(lambda x, out: torch.sum(x, 0, out=out), id="sum"),
    pytest.param(lambda x, out: torch.cat([x, x], out=out), id="cat"),
    pytest.param(lambda x, out: torch.stack([x, x], out=out), id="stack"),
    pytest.param(
        lambda x, out: torch.index_select(x, 0, torch.tensor([1, 0], device=x.device), out=out), id="index_select"
    ),
    pytest.param(lambda x, out: torch.cumsum(x, 1, out=out), id="cumsum"),
    pytest.param(lambda x, out: torch.clamp(x, -1, 1, out=out), id="clamp"),
    pytest.param(lambda x, out: torch.tril(x, out=out), id="tril"),
    pytest.param(lambda x, out: torch.where(x > 0, x, -x, out=out), id="where"),
]


@pytest.mark.parametrize("call", CALLS)
def test_empty_out_must_grow_to_the_result_and_be_returned(agree, device, integers, call):
    x = integers(3, 4)
    agree(lambda x: call(x, torch.empty(0, device=x.device)), x)
    out = torch.empty(0, device=device)
    assert call(x.to(device), out) is out
    assert out.untyped_storage().nbytes() >= out.numel() * 4
    torch.testing.assert_close(out.cpu(), call(x, torch.empty(0)))


@pytest.mark.parametrize("call", CALLS)
def test_fitting_out_must_be_written_in_its_own_memory(device, integers, call):
    x = integers(3, 4)
    expected = call(x, torch.empty(0))
    out = torch.full_like(expected, -99, device=device)
    pointer = out.data_ptr()
    call(x.to(device), out)
    assert out.data_ptr() == pointer
    torch.testing.assert_close(out.cpu(), expected)


@pytest.mark.parametrize("call", CALLS)
def test_non_contiguous_out_must_keep_its_strides(device, integers, call):
    x = integers(3, 4)
    expected = call(x, torch.empty(0))

    def strided(place):
        base = torch.full((*expected.shape, 2), -99.0, device=place)
        call(x.to(place), base[..., 0])
        return base

    got = strided(device).cpu()
    torch.testing.assert_close(got, strided("cpu"))
    assert bool((got[..., 1] == -99).all()), "what lies between must stay"


def test_out_of_another_shape_must_warn_and_resize_as_on_the_cpu(device):
    for place in ("cpu", device):
        x, out = torch.ones(4, device=place), torch.empty(3, device=place)
        with pytest.warns(UserWarning, match="resized"):
            torch.add(x, x, out=out)
        assert out.shape == (4,)
        assert out.tolist() == [2, 2, 2, 2]


def test_larger_out_must_shrink_and_keep_its_memory(device):
    out = torch.empty(100, device=device)
    pointer = out.data_ptr()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.add(torch.ones(3, device=device), 1, out=out)
    assert out.tolist() == [2, 2, 2]
    assert out.data_ptr() == pointer


def test_out_of_a_wider_dtype_must_be_cast_into(agree):
    agree(
        lambda x: torch.add(x, 1, out=torch.empty(3, dtype=torch.float64, device=x.device)), torch.arange(3), exact=True
    )


def test_out_of_a_dtype_that_cannot_hold_the_result_must_raise(both_raise, device):
    both_raise(lambda x: torch.add(x, 0.5, out=torch.empty(3, dtype=torch.int64, device=x.device)), torch.arange(3.0))
    out = torch.full((3,), 7, device=device)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(torch.ones(3, device=device), 0.5, out=out)
    assert out.tolist() == [7, 7, 7]


def test_out_on_the_cpu_must_be_refused(device):
    with pytest.raises(RuntimeError, match=r"device|cpu"):
        torch.add(torch.ones(3, device=device), 1, out=torch.empty(3))


def test_out_of_several_results_must_all_be_written(agree):
    def largest(x):
        values, indices = torch.empty(0, device=x.device), torch.empty(0, dtype=torch.int64, device=x.device)
        torch.max(x, 1, out=(values, indices))
        return values, indices

    agree(largest, torch.tensor([[1.0, 5.0, 2.0], [9.0, 3.0, 4.0]]), exact=True)


def test_out_that_needs_grad_must_be_refused(device):
    with pytest.raises(RuntimeError, match="grad"):
        torch.add(torch.ones(2, device=device, requires_grad=True), 1, out=torch.empty(2, device=device))


def test_out_view_must_write_through_to_its_base(device):
    base = torch.zeros(2, 4, device=device)
    torch.add(torch.ones(4, device=device), 1, out=base[1])
    assert base.tolist() == [[0] * 4, [2] * 4]
