"""Operands on flagos beside operands on the vendor's own device type: refused in PyTorch's words, but for copies."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - the name that PyTorch's documentation gives it

pytestmark = pytest.mark.device


def kernels(x):
    return x[None, None, :2, :2].contiguous()


def step(parameters, gradients):
    moments = [[torch.zeros(2, 3, device=parameters[0].device)] for _ in range(2)]
    steps = [torch.ones((), device=parameters[0].device)]
    torch._fused_adamw_(
        *(parameters, gradients, *moments, [], steps),
        lr=0.1,
        beta1=0.9,
        beta2=0.9,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )


# `ours` and `theirs` are equal matrices of 2 x 3.
MIXED = [
    pytest.param(lambda ours, theirs: ours + theirs, id="add"),
    pytest.param(lambda ours, theirs: theirs + ours, id="add-theirs-first"),
    pytest.param(lambda ours, theirs: ours.mul_(theirs), id="mul_"),
    pytest.param(lambda ours, theirs: theirs.mul_(ours), id="mul_-into-theirs"),
    pytest.param(lambda ours, theirs: torch.add(ours, ours, out=theirs), id="add-out"),
    pytest.param(lambda ours, theirs: ours + theirs.sum(), id="add-0-dim"),
    pytest.param(lambda ours, theirs: ours @ theirs.t(), id="mm"),
    pytest.param(lambda ours, theirs: torch.addmm(ours[:, :2], ours, theirs.t()), id="addmm"),
    pytest.param(F.linear, id="linear"),
    pytest.param(lambda ours, theirs: F.conv2d(ours[None, None], kernels(theirs)), id="conv2d"),
    pytest.param(lambda ours, theirs: torch.cat([ours, theirs]), id="cat"),
    pytest.param(lambda ours, theirs: torch.stack([theirs, ours]), id="stack"),
    pytest.param(lambda ours, theirs: torch.where(ours > 0, ours, theirs), id="where"),
    pytest.param(lambda ours, theirs: torch.lerp(ours, ours, theirs), id="lerp"),
    pytest.param(lambda ours, theirs: F.layer_norm(ours, (3,), theirs[0]), id="layer_norm"),
    pytest.param(lambda ours, theirs: F.batch_norm(ours, theirs[0], theirs[0]), id="batch_norm"),
    pytest.param(lambda ours, theirs: ours.masked_fill(theirs > 0, 1.0), id="masked_fill"),
    pytest.param(lambda ours, theirs: ours[theirs[0, :1].long()], id="index"),
    pytest.param(lambda ours, theirs: ours.index_put_((theirs[0, :1].long(),), ours[0]), id="index_put_"),
    pytest.param(lambda ours, theirs: ours.gather(0, (theirs * 0).long()), id="gather"),
    pytest.param(lambda ours, theirs: ours.scatter_(0, (theirs * 0).long(), 1.0), id="scatter_"),
    pytest.param(lambda ours, theirs: F.embedding(theirs[0, :1].long(), ours), id="embedding"),
    pytest.param(lambda ours, theirs: F.cross_entropy(ours, theirs[:, 0].long() * 0), id="cross_entropy"),
    pytest.param(torch.equal, id="equal"),
    pytest.param(lambda ours, theirs: torch._foreach_add([ours, ours], [ours, theirs]), id="foreach"),
    pytest.param(lambda ours, theirs: step([ours], [theirs]), id="fused-optimizer"),
    pytest.param(lambda ours, theirs: torch.linalg.solve(ours[:, :2], theirs[:, :2]), id="solve"),
    pytest.param(torch.cdist, id="cdist"),
    pytest.param(lambda ours, theirs: ours.set_(theirs), id="set_"),
    pytest.param(lambda ours, theirs: ours.set_(theirs.untyped_storage()), id="set_-storage"),
    pytest.param(lambda ours, theirs: torch.sparse.mm(ours.to_sparse(), theirs.t()), id="sparse-mm"),
]


@pytest.fixture
def pair(device):
    ours = torch.arange(1.0, 7.0).reshape(2, 3).to(device)
    return ours, torch.flagos.to_vendor(ours.clone())


@pytest.mark.parametrize("call", MIXED)
def test_operands_of_both_device_types_must_be_refused_in_pytorchs_words(pair, call):
    ours, theirs = pair
    text = r"Expected all tensors to be on the same device, but found at least two devices, flagos(:\d+)? and cuda:\d+!"
    with pytest.raises(RuntimeError, match=text):
        call(ours, theirs)
    assert (ours.device.type, theirs.device.type) == ("flagos", "cuda")
    assert ours.tolist() == theirs.cpu().tolist() == [[1, 2, 3], [4, 5, 6]]


def test_refusal_must_be_the_same_where_operators_are_called_boxed(pair):
    ours, theirs = pair
    with torch.autograd.profiler.profile(), pytest.raises(RuntimeError, match="found at least two devices, flagos"):
        torch.add(ours, theirs)


COPIES = [
    pytest.param(lambda to, source: to.copy_(source), id="copy_"),
    pytest.param(lambda to, source: torch._foreach_copy_([to], [source]), id="foreach_copy_"),
]


@pytest.mark.parametrize("profiled", [False, True], ids=["plain", "boxed"])
@pytest.mark.parametrize("reverse", [False, True], ids=["from-theirs", "to-theirs"])
@pytest.mark.parametrize("copy", COPIES)
def test_copies_between_both_device_types_must_work(pair, copy, reverse, profiled):
    to, source = reversed(pair) if reverse else pair
    to.zero_()
    with torch.autograd.profiler.profile(enabled=profiled):
        copy(to, source)
    assert to.cpu().tolist() == [[1, 2, 3], [4, 5, 6]]


def test_tensor_of_the_vendors_must_move_to_flagos_by_to(pair):
    ours, theirs = pair
    assert torch.equal(theirs.to(ours.device), ours)


def test_host_scalars_and_host_indices_must_be_taken_as_before(pair):
    ours, _ = pair
    assert (ours + torch.tensor(1.0)).tolist() == [[2, 3, 4], [5, 6, 7]]
    assert ours[torch.tensor([1])].tolist() == [[4, 5, 6]]
