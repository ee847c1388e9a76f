"""Tensors without elements: same value, shape and dtype as on the CPU, or the same refusal."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

pytestmark = pytest.mark.device

SHAPES = [(0,), (1, 0), (0, 3)]
CALLS = {
    "add": lambda x: x + x,
    "add-broadcast": lambda x: x + torch.ones(1, device=x.device),
    "exp": torch.exp,
    "sum": torch.sum,
    "sum-dim": lambda x: x.sum(0),
    "sum-last": lambda x: x.sum(-1, keepdim=True),
    "mean": torch.mean,
    "prod": torch.prod,
    "all": lambda x: x.bool().all(),
    "any": lambda x: x.bool().any(0),
    "count_nonzero": torch.count_nonzero,
    "nonzero": torch.nonzero,
    "cumsum": lambda x: x.cumsum(-1),
    "cat": lambda x: torch.cat([x, x, torch.ones_like(x)]),
    "stack": lambda x: torch.stack([x, x]),
    "sort": lambda x: x.sort(-1),
    "topk": lambda x: x.topk(0, -1),
    "softmax": lambda x: x.softmax(-1),
    "mask": lambda x: x[x > 0],
    "index_select": lambda x: x.index_select(0, torch.zeros(0, dtype=torch.int64, device=x.device)),
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.mT.contiguous() if x.dim() > 1 else x.contiguous(),
    "to-int": lambda x: x.to(torch.int32),
    "fill_": lambda x: x.fill_(3),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(torch.zeros_like(x)),
    "where": lambda x: torch.where(x > 0, x, -x),
    "unique": torch.unique,
    "flip": lambda x: x.flip(0),
    "reshape": lambda x: x.reshape(-1),
    "norm": torch.linalg.vector_norm,
    "logsumexp": lambda x: x.logsumexp(-1),
    "std": torch.std,
    "outer": lambda x: torch.outer(x.flatten(), x.flatten()),
    "relu": functional.relu,
    "pad": lambda x: functional.pad(x, (0, 2)),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom.*:UserWarning")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_operator_on_nothing_must_equal_cpu(agree, name, shape):
    agree(CALLS[name], torch.zeros(shape), exact=True)


REFUSED = [
    pytest.param(lambda x: x.max(), id="max"),
    pytest.param(lambda x: x.argmax(), id="argmax"),
    pytest.param(lambda x: x.amin(), id="amin"),
    pytest.param(lambda x: x.item(), id="item"),
    pytest.param(lambda x: x.topk(1), id="topk"),
    pytest.param(lambda x: x[0], id="index"),
]


@pytest.mark.parametrize("call", REFUSED)
def test_what_has_no_answer_for_nothing_must_raise_as_on_the_cpu(both_raise, call):
    both_raise(call, torch.zeros(0))


LAYERS = [
    pytest.param(lambda x: functional.linear(x, torch.ones(2, 4, device=x.device)), (0, 4), id="linear"),
    pytest.param(lambda x: functional.layer_norm(x, (4,)), (0, 4), id="layer_norm"),
    pytest.param(lambda x: functional.embedding(x.long(), torch.ones(3, 2, device=x.device)), (0, 4), id="embedding"),
    pytest.param(lambda x: functional.max_pool2d(x, 2), (0, 2, 4, 4), id="max_pool2d"),
    pytest.param(lambda x: functional.dropout(x, 0.5), (0, 4), id="dropout"),
    pytest.param(lambda x: x @ torch.ones(4, 3, device=x.device), (0, 4), id="mm"),
    pytest.param(lambda x: torch.cdist(x, x), (0, 4), id="cdist"),
    pytest.param(lambda x: functional.mse_loss(x, x, reduction="sum"), (0, 4), id="mse"),
]


@pytest.mark.parametrize(("call", "shape"), LAYERS)
def test_layer_on_an_empty_batch_must_equal_cpu(agree, call, shape):
    agree(call, torch.zeros(shape))


def test_gradient_of_nothing_must_be_nothing(agree):
    agree(lambda x: torch.autograd.grad((x * 2).sum(), x)[0], torch.zeros(0, 3, requires_grad=True))


def test_copies_of_nothing_must_work_in_each_direction(device):
    for shape in SHAPES:
        there = torch.zeros(shape).to(device)
        assert there.device == device
        assert there.cpu().shape == shape
        assert there.tolist() == torch.zeros(shape).tolist()


@pytest.mark.parametrize("name", ["randn", "rand"])
def test_random_tensor_of_no_elements_must_exist(device, name):
    assert getattr(torch, name)(0, 3, device=device).shape == (0, 3)
