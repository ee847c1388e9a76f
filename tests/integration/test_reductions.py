"""Reductions, scans, sorting and searching."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.device

REDUCTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "amin": torch.amin,
    "var": torch.var,
    "std": torch.std,
    "logsumexp": torch.logsumexp,
    "norm": torch.linalg.vector_norm,
    "any": torch.any,
    "all": torch.all,
    "count_nonzero": torch.count_nonzero,
}


@pytest.mark.parametrize("dim", [0, -1, (0, 2)], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_over_dimensions_must_equal_cpu(agree, integers, name, dim):
    agree(lambda x: REDUCTIONS[name](x, dim=dim), integers(4, 5, 6))


WHOLE = [
    pytest.param(torch.sum, id="sum"),
    pytest.param(torch.mean, id="mean"),
    pytest.param(torch.prod, id="prod"),
    pytest.param(torch.max, id="max"),
    pytest.param(torch.min, id="min"),
    pytest.param(torch.aminmax, id="aminmax"),
    pytest.param(torch.std_mean, id="std_mean"),
    pytest.param(torch.var_mean, id="var_mean"),
    pytest.param(torch.median, id="median"),
    pytest.param(torch.nansum, id="nansum"),
    pytest.param(torch.linalg.norm, id="norm"),
    pytest.param(torch.trace, id="trace"),
    pytest.param(lambda x: x.sum(0, keepdim=True), id="keepdim"),
    pytest.param(lambda x: x.t().sum(1), id="transposed"),
    pytest.param(lambda x: x[::2, 1:].sum(0), id="strided"),
    pytest.param(lambda x: x[:1].expand(7, -1).sum(0), id="expanded"),
]


@pytest.mark.parametrize("call", WHOLE)
def test_reduction_of_everything_must_equal_cpu(agree, call):
    agree(call, torch.randperm(30).reshape(5, 6) / 8 - 2)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float16, torch.float64], ids=str)
def test_sum_and_prod_must_widen_as_on_the_cpu(agree, dtype):
    values = (torch.arange(8) % 3 + 1).to(dtype)
    agree(lambda x: (x.sum(), x.prod(), x.cumsum(0), x.sum(dtype=torch.float64)), values, exact=True)


PICKS = [
    pytest.param(torch.argmax, id="argmax"),
    pytest.param(lambda x: torch.argmin(x, 1), id="argmin-dim"),
    pytest.param(lambda x: torch.max(x, 0), id="max-dim"),
    pytest.param(lambda x: torch.min(x, 1, keepdim=True), id="min-dim"),
    pytest.param(lambda x: torch.median(x, 1), id="median-dim"),
    pytest.param(lambda x: torch.sort(x, 1), id="sort"),
    pytest.param(lambda x: torch.sort(x, 0, descending=True), id="sort-descending"),
    pytest.param(lambda x: torch.sort(x.t(), dim=0, stable=True), id="sort-transposed"),
    pytest.param(torch.argsort, id="argsort"),
    pytest.param(lambda x: torch.topk(x, 3), id="topk"),
    pytest.param(lambda x: torch.topk(x, 2, 0, largest=False), id="topk-smallest"),
    pytest.param(lambda x: torch.kthvalue(x, 2, 1), id="kthvalue"),
    pytest.param(lambda x: torch.cumsum(x, 0), id="cumsum"),
    pytest.param(lambda x: torch.cumprod(x / 16, 1), id="cumprod"),
    pytest.param(lambda x: torch.cummax(x, 1), id="cummax"),
    pytest.param(lambda x: torch.logcumsumexp(x / 8, 1), id="logcumsumexp"),
    pytest.param(lambda x: torch.diff(x, dim=1), id="diff"),
    pytest.param(lambda x: torch.softmax(x / 8, -1), id="softmax"),
    pytest.param(lambda x: torch.log_softmax(x / 8, 0), id="log_softmax"),
    pytest.param(lambda x: torch.nonzero(x > 10), id="nonzero"),
    pytest.param(lambda x: torch.nonzero(x > 10, as_tuple=True), id="nonzero-tuple"),
    pytest.param(lambda x: torch.masked_select(x, x % 2 == 0), id="masked_select"),
    pytest.param(lambda x: torch.unique(x % 4), id="unique"),
    pytest.param(lambda x: torch.unique(x % 4, return_inverse=True, return_counts=True), id="unique-all"),
    pytest.param(lambda x: torch.unique_consecutive((x % 4).sort()[0].flatten()), id="unique_consecutive"),
    pytest.param(lambda x: torch.bincount(x.long().flatten() % 5, minlength=7), id="bincount"),
    pytest.param(lambda x: torch.histc(x, 4, 0, 30), id="histc"),
    pytest.param(lambda x: torch.searchsorted(x.flatten().sort()[0], x), id="searchsorted"),
    pytest.param(lambda x: torch.bucketize(x, x.new_tensor([5.0, 10.0, 20.0])), id="bucketize"),
    pytest.param(lambda x: torch.quantile(x, 0.25), id="quantile"),
    pytest.param(lambda x: torch.cdist(x, x + 1), id="cdist"),
    pytest.param(lambda x: torch.roll(x, 2, 1), id="roll"),
    pytest.param(lambda x: torch.flip(x, (0, 1)), id="flip"),
    pytest.param(lambda x: torch.repeat_interleave(x, 2, 0), id="repeat_interleave"),
    pytest.param(lambda x: x.repeat(2, 1, 2), id="repeat"),
    pytest.param(lambda x: torch.cat([x, x.t().reshape(5, 6), x[:0]]), id="cat"),
    pytest.param(lambda x: torch.stack([x, x + 1], 2), id="stack"),
    pytest.param(lambda x: torch.tril(x, 1), id="tril"),
    pytest.param(lambda x: torch.triu(x.t()), id="triu"),
    pytest.param(lambda x: torch.tensor_split(x, 4, 1), id="tensor_split"),
]


@pytest.mark.parametrize("call", PICKS)
def test_scan_sort_search_and_rearrangement_must_equal_cpu(agree, call):
    agree(call, torch.randperm(30).reshape(5, 6).float())


def test_max_of_nan_must_be_nan(agree):
    agree(lambda x: (x.max(), x.amin(), x.argmax(), x.sum()), torch.tensor([1.0, float("nan"), 3.0]))


def test_large_sum_must_not_lose_precision(agree):
    agree(lambda x: x.double().sum(), torch.arange(1 << 20, dtype=torch.float32), exact=True)


def test_dimension_out_of_range_must_raise_as_on_the_cpu(both_raise, device):
    both_raise(lambda x: x.sum(5), torch.ones(2))
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.ones(2, device=device).sum(5)
