"""Operators over lists of tensors."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.device

UNARY = ["abs", "neg", "sqrt", "exp", "reciprocal", "sigmoid", "tanh", "floor", "zero_"]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum"]


def lists(count: int = 3) -> list[torch.Tensor]:
    return [torch.arange(1.0, 2.0 + size).reshape(1, -1) / 4 for size in range(1, 1 + count)]


@pytest.mark.parametrize("name", UNARY)
def test_unary_over_a_list_must_equal_cpu(agree, name):
    agree(lambda *tensors: getattr(torch, f"_foreach_{name}")(list(tensors)), *lists())


@pytest.mark.parametrize("name", BINARY)
def test_binary_over_two_lists_must_equal_cpu(agree, name):
    call = getattr(torch, f"_foreach_{name}")
    agree(call, lists(), [value * 3 for value in lists()])


@pytest.mark.parametrize("name", BINARY)
def test_in_place_binary_with_a_scalar_must_change_every_tensor_of_the_list(agree, name):
    def call(tensors):
        getattr(torch, f"_foreach_{name}_")(tensors, 2.0)
        return tensors

    agree(call, lists())


def test_scalar_lists_and_tensor_scalars_must_equal_cpu(agree):
    agree(lambda x: torch._foreach_mul(x, [1.0, 2.0, 3.0]), lists())
    agree(torch._foreach_mul, lists(), torch.tensor(2.5))
    agree(lambda x, y: torch._foreach_addcmul(x, y, y, value=0.5), lists(), lists())
    agree(lambda x, y: torch._foreach_addcdiv(x, y, y, [1.0, 2.0, 3.0]), lists(), lists())
    agree(lambda x, y: torch._foreach_lerp(x, y, 0.25), lists(), lists())


def test_norms_of_a_list_must_equal_cpu(agree):
    agree(lambda x: torch._foreach_norm(x, 2), lists())


def test_copy_over_a_list_must_cross_from_host_to_device(device):
    targets = [torch.empty_like(value, device=device) for value in lists()]
    torch._foreach_copy_(targets, lists())
    assert all(torch.equal(one.cpu(), other) for one, other in zip(targets, lists(), strict=True))


@pytest.mark.parametrize("count", [2, 20])
def test_lists_must_let_go_of_their_tensors_whether_or_not_the_call_succeeds(device, count):
    host, own, other = torch.ones(2), torch.ones(2, device=device), torch.ones(2, 2, device=device)
    before = [tensor._use_count() for tensor in (host, own)]
    torch._foreach_copy_([own.clone() for _ in range(count)], [host] * count)
    torch.cat([own] * count)
    for wrong in ([*[own] * count, other], [*[own] * count, host]):
        with pytest.raises(RuntimeError):
            torch.cat(wrong)
    assert [tensor._use_count() for tensor in (host, own)] == before


def test_list_must_mix_dtypes_layouts_and_empty_tensors(agree):
    mixed = [torch.arange(4), torch.arange(6.0).reshape(2, 3).t(), torch.zeros(0), torch.tensor(3.0)]
    agree(lambda x: torch._foreach_add(x, 1), mixed, exact=True)


def test_long_list_must_be_done_whole(device):
    tensors = [torch.full((5,), float(index), device=device) for index in range(300)]
    torch._foreach_add_(tensors, 1)
    assert [int(value[0]) for value in tensors] == list(range(1, 301))


def test_results_must_be_on_their_tensors_devices(device, other_device):
    pair = [torch.ones(2, device=device), torch.ones(2, device=other_device)]
    assert [value.device for value in torch._foreach_add(pair, 1)] == [device, other_device]


def test_empty_list_must_be_refused_as_on_the_cpu():
    with pytest.raises(RuntimeError, match="at least one tensor"):
        torch._foreach_add([], 1)


# Not _foreach_zero_: CUDA's kernel for it does not count.
IN_PLACE = {
    "_foreach_add_": lambda one: torch._foreach_add_([one], 1.0),
    "_foreach_mul_": lambda one: torch._foreach_mul_([one], [one]),
    "_foreach_neg_": lambda one: torch._foreach_neg_([one]),
    "_foreach_addcmul_": lambda one: torch._foreach_addcmul_([one], [one], [one]),
    "_foreach_copy_": lambda one: torch._foreach_copy_([one], [one + 1]),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_operand_of_a_graph_that_a_list_operator_changes_must_stop_the_backward_pass(device, name):
    one, weight = torch.ones(3, device=device), torch.ones(3, device=device, requires_grad=True)
    product = (weight * one).sum()
    with torch.no_grad():
        IN_PLACE[name](one)
    assert one._version > 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
