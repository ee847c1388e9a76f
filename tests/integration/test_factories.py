"""Factories: values, dtype, layout and device of new tensors."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.device

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]

MADE = [
    pytest.param(lambda d: torch.zeros(2, 3, device=d), id="zeros"),
    pytest.param(lambda d: torch.ones(2, 3, device=d), id="ones"),
    pytest.param(lambda d: torch.full((2, 3), 1.5, device=d), id="full"),
    pytest.param(lambda d: torch.full((2,), 7, device=d), id="full-int"),
    pytest.param(lambda d: torch.full((2,), True, device=d), id="full-bool"),
    pytest.param(lambda d: torch.arange(5, device=d), id="arange"),
    pytest.param(lambda d: torch.arange(1.0, 2.0, 0.25, device=d), id="arange-float"),
    pytest.param(lambda d: torch.linspace(0, 1, 9, device=d), id="linspace"),
    pytest.param(lambda d: torch.logspace(0, 2, 5, device=d), id="logspace"),
    pytest.param(lambda d: torch.eye(3, 4, device=d), id="eye"),
    pytest.param(lambda d: torch.tril_indices(3, 3, device=d), id="tril_indices"),
    pytest.param(lambda d: torch.triu_indices(3, 4, 1, device=d), id="triu_indices"),
    pytest.param(lambda d: torch.hann_window(8, device=d), id="hann_window"),
    pytest.param(lambda d: torch.scalar_tensor(2.5, device=d), id="scalar_tensor"),
    pytest.param(lambda d: torch.tensor([[1, 2], [3, 4]], device=d), id="tensor-list"),
    pytest.param(lambda d: torch.tensor(3.25, device=d), id="tensor-scalar"),
    pytest.param(lambda d: torch.tensor([], device=d), id="tensor-empty"),
    pytest.param(lambda d: torch.tensor(torch.arange(4.0).numpy(), device=d), id="tensor-numpy"),
    pytest.param(lambda d: torch.as_tensor(torch.arange(6).reshape(2, 3).numpy(), device=d), id="as_tensor"),
    pytest.param(lambda d: torch.complex(torch.ones(2, device=d), torch.zeros(2, device=d)), id="complex"),
    pytest.param(
        lambda d: torch.meshgrid(torch.arange(2, device=d), torch.arange(3, device=d), indexing="ij"), id="meshgrid"
    ),
    pytest.param(lambda d: torch.zeros_like(torch.ones(2, 3, device=d)), id="zeros_like"),
    pytest.param(lambda d: torch.ones_like(torch.zeros(2, device=d), dtype=torch.int32), id="ones_like-dtype"),
    pytest.param(lambda d: torch.full_like(torch.zeros(2, 2, device=d), 4), id="full_like"),
    pytest.param(lambda d: torch.zeros(1, device=d).new_tensor([1, 2]), id="new_tensor"),
    pytest.param(lambda d: torch.zeros(1, device=d).new_full((2,), 3), id="new_full"),
    pytest.param(lambda d: torch.zeros(1, device=d).new_zeros(2, 2), id="new_zeros"),
    pytest.param(lambda d: torch.zeros(1, device=d, dtype=torch.float64).new_ones(3), id="new_ones"),
    pytest.param(lambda d: torch.block_diag(torch.ones(2, 2, device=d), torch.ones(1, 1, device=d)), id="block_diag"),
    pytest.param(lambda d: torch.vander(torch.arange(1.0, 4.0, device=d)), id="vander"),
]


@pytest.mark.parametrize("make", MADE)
def test_factory_must_give_what_it_gives_on_the_cpu(device, assert_same, make):
    assert_same(make(device), make("cpu"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_zeros_and_ones_must_exist_in_every_dtype(device, assert_same, dtype):
    for make in (torch.zeros, torch.ones):
        assert_same(make(3, 2, dtype=dtype, device=device), make(3, 2, dtype=dtype), exact=True)


EMPTIES = [
    pytest.param(lambda d: torch.empty(2, 3, device=d), id="empty"),
    pytest.param(lambda d: torch.empty(0, device=d), id="empty-0"),
    pytest.param(lambda d: torch.empty((), device=d), id="empty-0-dim"),
    pytest.param(lambda d: torch.empty_strided((2, 3), (1, 2), device=d), id="empty_strided"),
    pytest.param(lambda d: torch.empty(2, 3, 4, 5, device=d, memory_format=torch.channels_last), id="channels_last"),
    pytest.param(
        lambda d: torch.empty_like(torch.empty(2, 3, 4, 5, device=d).contiguous(memory_format=torch.channels_last)),
        id="empty_like-keeps-channels_last",
    ),
    pytest.param(lambda d: torch.empty_like(torch.empty(3, 4, device=d).t()), id="empty_like-keeps-transposed"),
    pytest.param(lambda d: torch.empty_permuted((2, 3, 4), (2, 0, 1), device=d), id="empty_permuted"),
    pytest.param(lambda d: torch.empty(3, device=d).new_empty((4, 2)), id="new_empty"),
    pytest.param(lambda d: torch.empty(3, device=d).new_empty_strided((2, 2), (4, 1)), id="new_empty_strided"),
]


@pytest.mark.parametrize("make", EMPTIES)
def test_empty_must_have_the_layout_of_the_cpu(device, make):
    got, expected = make(device), make("cpu")
    assert got.shape == expected.shape
    assert got.stride() == expected.stride()
    assert got.dtype == expected.dtype
    assert got.untyped_storage().nbytes() == expected.untyped_storage().nbytes()


def test_new_tensor_must_be_on_the_device_that_was_named(device, other_device):
    for place in (device, other_device):
        assert torch.zeros(2, device=place).device == place
        assert torch.empty(2, device=str(place)).device == place
        assert torch.tensor([1], device=place).device == place
        assert torch.zeros_like(torch.empty(2, device=place)).device == place
        assert torch.arange(3, device=place).device == place


def test_device_without_index_must_mean_the_current_one(device, other_device):
    assert torch.zeros(1, device="flagos").device == device
    with torch.flagos.device(other_device):
        assert torch.zeros(1, device="flagos").device == other_device
    assert torch.zeros(1, device="flagos").device == device


def test_default_device_must_be_obeyed(device):
    with device:
        assert torch.ones(2).device == device
        assert torch.ones(2, device="cpu").device.type == "cpu"
    assert torch.ones(2).device.type == "cpu"


def test_default_dtype_must_be_obeyed(device):
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.zeros(1, device=device).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_requires_grad_must_be_obeyed(device):
    assert torch.zeros(1, device=device, requires_grad=True).requires_grad
    assert torch.zeros(1, device=device, requires_grad=True).is_leaf


def test_negative_size_must_raise(device):
    with pytest.raises(RuntimeError, match="negative"):
        torch.empty(-1, device=device)


def test_fresh_tensors_must_not_share_memory(device):
    tensors = [torch.zeros(16, device=device) for _ in range(8)]
    assert len({tensor.data_ptr() for tensor in tensors}) == 8
    tensors[0].fill_(1)
    assert sum(int(tensor.sum()) for tensor in tensors[1:]) == 0
