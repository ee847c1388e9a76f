"""Reading one value: item and what Python does with 0-dim tensors."""

from __future__ import annotations

import math

import pytest
import torch

pytestmark = pytest.mark.device

VALUES = [
    pytest.param(True, torch.bool, id="bool"),
    pytest.param(200, torch.uint8, id="uint8"),
    pytest.param(-5, torch.int8, id="int8"),
    pytest.param(-(1 << 62), torch.int64, id="int64"),
    pytest.param(0.5, torch.float16, id="float16"),
    pytest.param(-1.5, torch.bfloat16, id="bfloat16"),
    pytest.param(1.25, torch.float32, id="float32"),
    pytest.param(math.pi, torch.float64, id="float64"),
    pytest.param(1.5 - 2j, torch.complex64, id="complex64"),
    pytest.param(math.pi + 1j, torch.complex128, id="complex128"),
]


@pytest.mark.parametrize(("value", "dtype"), VALUES)
def test_item_must_give_the_value_in_its_python_type(device, value, dtype):
    got = torch.tensor(value, dtype=dtype, device=device).item()
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(("value", "dtype"), VALUES)
def test_tolist_must_give_the_values_of_a_strided_tensor(device, value, dtype):
    tensor = torch.tensor([value, value, value, value], dtype=dtype, device=device)[::2]
    assert tensor.tolist() == [value, value]


def test_conversions_must_work_as_on_the_cpu(device):
    assert int(torch.tensor(7.9, device=device)) == 7
    assert float(torch.tensor([2.5], device=device)) == 2.5
    assert complex(torch.tensor(1j, device=device)) == 1j
    assert bool(torch.tensor([3], device=device))
    assert not torch.tensor(0.0, device=device)
    assert list(range(4))[torch.tensor(2, device=device)] == 2
    assert f"{torch.tensor(1.5, device=device):.2f}" == "1.50"


def test_conversion_of_several_values_must_raise(device):
    tensor = torch.ones(2, device=device)
    with pytest.raises(RuntimeError, match="Boolean value of Tensor"):
        bool(tensor)
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        tensor.item()


def test_item_of_a_view_must_read_at_its_offset(device):
    assert torch.arange(10.0, device=device)[7].item() == 7


def test_item_must_wait_for_the_work_before_it(device):
    total = torch.zeros((), device=device)
    for _ in range(100):
        total.add_(1)
    assert total.item() == 100


def test_equal_and_allclose_must_give_python_booleans(device):
    one, two = torch.ones(3, device=device), torch.full((3,), 1 + 1e-9, device=device)
    assert torch.equal(one, one.clone()) is True
    assert torch.equal(one, torch.zeros(3, device=device)) is False
    assert torch.allclose(one, two) is True


def test_printing_must_show_values_and_device(device):
    assert repr(torch.tensor([1.0, 2.0], device=device)) == f"tensor([1., 2.], device='{device}')"
    assert f"device='{device}'" in repr(torch.zeros(0, device=device))
    assert "requires_grad=True" in repr(torch.zeros(1, device=device, requires_grad=True))
