"""Resizing: tensors, their storages, and views that are alive meanwhile."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.device


@pytest.mark.parametrize("size", [(2,), (3, 2), (0,), (16,), (4, 4, 4)], ids=str)
def test_resize_must_keep_the_elements_that_remain(device, size):
    target = torch.arange(6.0, device=device)
    assert target.resize_(size) is target
    assert target.shape == size
    assert target.is_contiguous()
    kept = min(6, target.numel())
    assert target.flatten()[:kept].tolist() == [float(value) for value in range(kept)]
    target.fill_(1)
    assert int(target.sum()) == target.numel()


def test_resize_to_smaller_must_keep_the_memory(device):
    target = torch.arange(6.0, device=device)
    pointer = target.data_ptr()
    target.resize_(2).resize_(6)
    assert target.data_ptr() == pointer
    assert target.tolist() == [0, 1, 2, 3, 4, 5]


def test_resize_as_must_take_the_other_shape(device):
    assert torch.empty(0, device=device).resize_as_(torch.empty(2, 3)).shape == (2, 3)


@pytest.mark.parametrize("nbytes", [8, 24, 400], ids=["down", "same", "up"])
def test_storage_resize_must_keep_the_prefix(device, nbytes):
    target = torch.arange(6.0, device=device)
    storage = target.untyped_storage()
    storage.resize_(nbytes)
    assert storage.nbytes() == nbytes
    kept = min(6, nbytes // 4)
    assert target[:kept].tolist() == [float(value) for value in range(kept)]


def test_storage_freed_and_given_back_must_be_usable_by_every_view(device):
    base = torch.arange(8.0, device=device)
    view = base[2:6]
    storage = base.untyped_storage()
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(32)
    base.copy_(torch.arange(8.0))
    assert view.tolist() == [2, 3, 4, 5]
    assert view.data_ptr() == base.data_ptr() + 8
    assert torch._C._is_alias_of(view, base)


def test_growing_a_storage_must_be_seen_by_views_made_before(device):
    base = torch.arange(4.0, device=device)
    view = base[1:3]
    base.untyped_storage().resize_(4096)
    base.mul_(10)
    assert view.tolist() == [10, 20]
    assert (view + 1).tolist() == [11, 21]


def test_tensor_over_a_storage_that_is_too_small_must_raise_not_read_beyond(device):
    base = torch.arange(4.0, device=device)
    with pytest.raises(RuntimeError, match=r"out of bounds|storage"):
        base.as_strided((8,), (1,))


def test_storage_must_know_its_device_size_and_owner(device):
    base = torch.zeros(6, device=device)
    storage = base.untyped_storage()
    assert storage.device == device
    assert storage.nbytes() == 24
    assert base[2:].untyped_storage().data_ptr() == storage.data_ptr()
    assert storage.cpu().tolist() == [0] * 24


def test_storage_copies_must_move_the_bytes(device):
    source = torch.arange(6.0)
    clone = source.to(device).untyped_storage().clone()
    assert clone.device == device
    assert torch.equal(torch.empty(0).set_(clone.cpu()), source)


def test_new_tensor_over_an_old_storage_must_share_it(device):
    base = torch.arange(6.0, device=device)
    second = torch.empty(0, device=device).set_(base.untyped_storage(), 2, (2, 2), (2, 1))
    second.fill_(-1)
    assert base.tolist() == [0, 1, -1, -1, -1, -1]


def test_resize_of_a_tensor_that_needs_grad_must_raise(device):
    with pytest.raises(RuntimeError, match="grad"):
        torch.zeros(2, device=device, requires_grad=True).resize_(3)
