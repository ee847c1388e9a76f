"""Errors: PyTorch's own words, and tensors left as they were."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.device

MIXED = [
    pytest.param(lambda here, there: here + there, id="add"),
    pytest.param(lambda here, there: there * here, id="mul"),
    pytest.param(torch.mm, id="mm"),
    pytest.param(lambda here, there: torch.where(there > 0, there, here), id="where"),
    pytest.param(lambda here, there: torch.cat([there, here]), id="cat"),
    pytest.param(lambda here, there: there.add_(here), id="add_"),
    pytest.param(lambda here, there: torch.nn.functional.linear(there, here), id="linear"),
    pytest.param(lambda here, there: torch.addcmul(there, there, here), id="addcmul"),
]


@pytest.mark.parametrize("call", MIXED)
def test_operands_on_host_and_device_must_be_refused_in_pytorchs_words(device, call):
    here, there = torch.ones(2, 2), torch.ones(2, 2, device=device)
    with pytest.raises(RuntimeError, match=r"same device|different from|found at least two devices") as caught:
        call(here, there)
    assert "cuda" not in str(caught.value), "the user knows this device as flagos"
    assert "flagos" in str(caught.value)
    assert there.device == device
    assert there.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("call", [torch.add, torch.mm], ids=["add", "mm"])
def test_operands_on_two_devices_must_be_refused_in_pytorchs_words(device, other_device, call):
    with pytest.raises(RuntimeError, match=r"same device|found at least two devices"):
        call(torch.ones(2, 2, device=device), torch.ones(2, 2, device=other_device))


FAILING = [
    pytest.param(torch.mm, id="mm"),
    pytest.param(lambda a, b: torch.cat([a, b], 0), id="cat-list"),
    pytest.param(torch.add, id="add"),
    pytest.param(lambda a, b: a.add_(b), id="add_"),
    pytest.param(lambda a, b: torch.mm(a, b, out=a), id="mm-out"),
    pytest.param(lambda a, b: torch._foreach_add([a, a], [b, b]), id="foreach"),
    pytest.param(lambda a, b: a.copy_(b), id="copy_"),
    pytest.param(lambda a, b: a[b > 0], id="mask"),
    pytest.param(lambda a, _: a.view(5), id="view"),
    pytest.param(lambda a, _: a.expand(7, 7), id="expand"),
    pytest.param(lambda a, _: torch.linalg.inv(a), id="inv"),
    pytest.param(lambda a, _: torch.linalg.cholesky(-a[:, :2]), id="cholesky"),
]


@pytest.mark.parametrize("call", FAILING)
def test_failed_operator_must_leave_its_tensors_as_they_were(device, call):
    a, b = torch.arange(6.0, device=device).reshape(2, 3), torch.ones(2, 4, device=device)
    pointer, strides = a.data_ptr(), a.stride()
    with pytest.raises((RuntimeError, IndexError)):
        call(a, b)
    assert a.device == device
    assert a.data_ptr() == pointer
    assert a.stride() == strides
    assert a.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (a + a).device == device
    assert torch.equal((a * 2).cpu(), torch.arange(6.0).reshape(2, 3) * 2)


def test_one_tensor_as_every_operand_must_work_after_a_failure(device):
    a = torch.ones(3, 3, device=device)
    with pytest.raises(RuntimeError):
        torch.addmm(a, a, a[:2])
    assert torch.addmm(a, a, a).tolist() == [[4.0] * 3] * 3
    assert torch.stack([a, a, a]).sum().item() == 27


def test_error_in_a_process_must_not_spoil_what_follows(device):
    for _ in range(50):
        with pytest.raises(RuntimeError):
            torch.mm(torch.ones(2, 3, device=device), torch.ones(2, 3, device=device))
    assert torch.ones(4, device=device).sum().item() == 4


def test_current_device_must_survive_a_failure_on_another(device, other_device):
    x = torch.ones(2, 3, device=other_device)
    with pytest.raises(RuntimeError):
        torch.mm(x, x)
    assert torch.flagos.current_device() == device.index


def test_shape_errors_must_name_the_shapes(device):
    with pytest.raises(RuntimeError, match="2x3 and 2x3"):
        torch.mm(torch.ones(2, 3, device=device), torch.ones(2, 3, device=device))


def test_unknown_operator_argument_must_be_a_type_error(both_raise):
    both_raise(lambda x: x.sum(nonsense=1), torch.ones(2))


def test_exception_from_user_code_inside_backward_must_arrive(device):
    x = torch.ones(2, device=device, requires_grad=True)
    y = x * 2

    def explode(_slope):
        raise ValueError("from the hook")

    y.register_hook(explode)
    with pytest.raises(ValueError, match="from the hook"):
        y.sum().backward()
    assert (x + 1).tolist() == [2, 2]
