"""In-place operators: same object, same memory, right values, version counted up."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.device

CALLS = [
    pytest.param(lambda x, y: x.add_(y), id="add_"),
    pytest.param(lambda x, y: x.add_(y, alpha=3), id="add_-alpha"),
    pytest.param(lambda x, _: x.add_(2), id="add_-scalar"),
    pytest.param(lambda x, y: x.sub_(y), id="sub_"),
    pytest.param(lambda x, y: x.mul_(y), id="mul_"),
    pytest.param(lambda x, _: x.mul_(2.0), id="mul_-scalar"),
    pytest.param(lambda x, _: x.mul_(torch.tensor(2.0)), id="mul_-cpu-0-dim"),
    pytest.param(lambda x, y: x.div_(y.abs() + 1), id="div_"),
    pytest.param(lambda x, _: x.pow_(2), id="pow_"),
    pytest.param(lambda x, y: x.addcmul_(x, y, value=0.5), id="addcmul_"),
    pytest.param(lambda x, y: x.addcdiv_(x, y.abs() + 1), id="addcdiv_"),
    pytest.param(lambda x, y: x.lerp_(y, 0.25), id="lerp_"),
    pytest.param(lambda x, _: x.clamp_(-1, 1), id="clamp_"),
    pytest.param(lambda x, _: x.relu_(), id="relu_"),
    pytest.param(lambda x, _: x.neg_(), id="neg_"),
    pytest.param(lambda x, _: x.exp_(), id="exp_"),
    pytest.param(lambda x, _: x.sigmoid_(), id="sigmoid_"),
    pytest.param(lambda x, _: x.zero_(), id="zero_"),
    pytest.param(lambda x, _: x.fill_(3), id="fill_"),
    pytest.param(lambda x, _: x.fill_(torch.tensor(4.0)), id="fill_-tensor"),
    pytest.param(lambda x, _: x.cumsum_(1), id="cumsum_"),
    pytest.param(lambda x, _: x.tril_(), id="tril_"),
    pytest.param(lambda x, y: x.masked_fill_(y > 0, 9), id="masked_fill_"),
    pytest.param(lambda x, y: x.copysign_(y), id="copysign_"),
    pytest.param(lambda x, y: x.eq_(y), id="eq_"),
    pytest.param(lambda x, y: x.addmm_(y, y), id="addmm_"),
    pytest.param(lambda x, _: x.fill_diagonal_(5), id="fill_diagonal_"),
    pytest.param(lambda x, _: x.mul_(x), id="mul_-itself"),
]


@pytest.mark.parametrize("call", CALLS)
def test_in_place_operator_must_equal_cpu_and_return_its_object(agree, to_device, integers, call):
    values, other = integers(4, 4), integers(4, 4)
    agree(call, values, other)
    target = to_device(values)
    pointer, version = target.data_ptr(), target._version
    assert call(target, to_device(other)) is target
    assert target.data_ptr() == pointer
    assert target._version > version


def test_in_place_with_a_result_type_that_does_not_fit_must_raise_and_change_nothing(both_raise, device):
    both_raise(lambda x: x.add_(0.5), torch.arange(3))
    target = torch.arange(3, device=device)
    with pytest.raises(RuntimeError, match="can't be cast"):
        target.add_(0.5)
    assert target.tolist() == [0, 1, 2]


def test_in_place_that_would_grow_its_object_must_raise_and_change_nothing(device):
    target = torch.ones(3, device=device)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        target.add_(torch.ones(2, 3, device=device))
    assert target.tolist() == [1, 1, 1]


def test_shape_only_in_place_operators_must_keep_the_memory(agree, device):
    agree(lambda x: x.t_(), torch.arange(6.0).reshape(2, 3), exact=True)
    agree(lambda x: x.unsqueeze_(0), torch.arange(6.0), exact=True)
    agree(lambda x: x.squeeze_(), torch.arange(6.0).reshape(1, 6), exact=True)
    agree(lambda x: x.transpose_(0, 2), torch.arange(24.0).reshape(2, 3, 4), exact=True)
    target = torch.arange(6.0, device=device).reshape(2, 3)
    pointer = target.data_ptr()
    assert target.t_().data_ptr() == pointer


def test_set_must_take_over_the_other_tensors_memory(device):
    target, source = torch.zeros(1, device=device), torch.arange(4.0, device=device)
    target.set_(source)
    assert target.data_ptr() == source.data_ptr()
    assert target.tolist() == [0, 1, 2, 3]
    target[0] = 9
    assert source[0].item() == 9


def test_data_assignment_must_swap_the_memory_and_keep_the_object(device):
    target = torch.zeros(2, device=device)
    before = id(target)
    target.data = torch.ones(3, device=device)
    assert id(target) == before
    assert target.tolist() == [1, 1, 1]


def test_data_must_move_a_tensor_to_the_device(device):
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.data = parameter.data.to(device)
    assert parameter.device == device
    assert parameter.is_leaf
