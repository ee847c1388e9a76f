"""Memory seen from both sides: the vendor's own tensors, and DLPack."""

from __future__ import annotations

import gc

import pytest
import torch

pytestmark = pytest.mark.device

to_vendor, from_vendor = (getattr(torch.flagos, name) for name in ("to_vendor", "from_vendor"))


def test_vendor_tensor_must_show_the_same_memory_and_geometry(device):
    value = torch.arange(12.0, device=device).reshape(3, 4)[1:, ::2]
    theirs = to_vendor(value)
    assert theirs.device == torch.device("cuda", device.index)
    assert theirs.data_ptr() == value.data_ptr()
    assert (theirs.shape, theirs.stride(), theirs.storage_offset()) == (value.shape, value.stride(), 4)
    assert torch.equal(theirs.cpu(), value.cpu())


def test_change_on_either_side_must_be_seen_on_the_other(device):
    value = torch.zeros(4, device=device)
    theirs = to_vendor(value)
    theirs.add_(1)
    assert value.tolist() == [1, 1, 1, 1]
    value.mul_(3)
    assert theirs.cpu().tolist() == [3, 3, 3, 3]


def test_vendors_kernels_must_compute_with_it(device):
    theirs = to_vendor(torch.arange(4.0, device=device))
    result = from_vendor(theirs * 2 + 1)
    assert result.device == device
    assert result.tolist() == [1, 3, 5, 7]


def test_versions_must_count_together_so_that_autograd_notices(device):
    weight = torch.ones(3, device=device, requires_grad=True)
    value = torch.ones(3, device=device)
    product = weight * value
    to_vendor(value).zero_()
    assert value._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_memory_must_outlive_the_side_it_came_from(device):
    value = torch.arange(1000.0, device=device)
    theirs = to_vendor(value)
    del value
    gc.collect()
    back = from_vendor(theirs)
    del theirs
    gc.collect()
    torch.full((1000,), -1.0, device=device)
    assert back.tolist() == list(range(1000))


def test_what_goes_and_comes_back_must_be_on_the_same_storage(device):
    value = torch.zeros(6, device=device)
    back = from_vendor(to_vendor(value[2:]))
    assert back.is_set_to(value[2:])
    assert torch._C._is_alias_of(back, value)


def test_vendor_tensors_that_share_must_share_afterwards(device):
    theirs = to_vendor(torch.zeros(6, device=device)) + 1
    one, other = from_vendor(theirs), from_vendor(theirs[3:])
    assert one.untyped_storage()._cdata == other.untyped_storage()._cdata
    one.zero_()
    assert other.tolist() == [0, 0, 0]


def test_overlap_must_still_be_noticed_after_sharing(device):
    value = from_vendor(to_vendor(torch.zeros(6, device=device)))
    with pytest.raises(RuntimeError, match="memory"):
        torch.add(value[:-1], 1, out=value[1:])


def test_storage_that_both_sides_see_must_not_be_resized(device):
    value = torch.zeros(4, device=device)
    theirs = to_vendor(value)
    for grow in (value, theirs):
        with pytest.raises(RuntimeError, match="resizable"):
            grow.resize_(1 << 16)
    assert value.tolist() == [0, 0, 0, 0]
    value.resize_(2)
    assert value.tolist() == [0, 0]


def test_shared_tensor_must_be_detached(device):
    weight = torch.ones(3, device=device, requires_grad=True)
    assert not to_vendor(weight * 2).requires_grad
    assert not from_vendor(to_vendor(weight)).requires_grad


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.bfloat16, torch.complex64], ids=str)
def test_data_type_and_bits_must_be_kept(device, dtype):
    value = torch.tensor([0, 1, 1, 0], device=device).to(dtype)
    assert torch.equal(from_vendor(to_vendor(value)), value)


def test_lazy_conjugation_must_be_kept(device):
    value = torch.tensor([1 + 2j], device=device).conj()
    theirs = to_vendor(value)
    assert theirs.is_conj()
    assert theirs.cpu().tolist() == [1 - 2j]
    assert from_vendor(theirs).tolist() == [1 - 2j]


def test_empty_tensor_must_be_shared(device):
    assert from_vendor(to_vendor(torch.empty(0, 3, device=device))).shape == (0, 3)


def test_tensor_of_the_wrong_side_must_be_refused(device):
    value = torch.ones(2, device=device)
    with pytest.raises(TypeError, match=r"to_vendor expects.*'flagos'.*cpu"):
        to_vendor(torch.ones(2))
    with pytest.raises(TypeError, match=r"from_vendor expects.*'cuda'.*flagos"):
        from_vendor(value)
    with pytest.raises(TypeError, match="to_vendor expects"):
        to_vendor(to_vendor(value))


def test_backward_of_the_vendors_own_tensors_must_work_or_raise_and_leave_flagos_working(device):
    """PyTorch provides for one accelerator; with two, it asserts (docs/limits.md)."""
    theirs = to_vendor(torch.ones(2, device=device)).requires_grad_()
    try:
        (theirs * theirs).sum().backward()
        assert theirs.grad.cpu().tolist() == [2, 2]
    except RuntimeError as err:
        assert "stream" in str(err)  # noqa: PT017 - either is right
    own = torch.ones(2, device=device, requires_grad=True)
    (own * own).sum().backward()
    assert own.grad.tolist() == [2, 2]


def test_dlpack_must_share_memory_within_the_device(device):
    value = torch.arange(4.0, device=device)
    same = torch.from_dlpack(value)
    assert same.device == device
    same[0] = 9
    assert value.tolist() == [9, 1, 2, 3]


def test_dlpack_capsule_must_keep_the_memory_alive(device):
    capsule = torch.utils.dlpack.to_dlpack(torch.arange(100.0, device=device)[10:20:2])
    gc.collect()
    back = torch.utils.dlpack.from_dlpack(capsule)
    assert (back.device, back.tolist()) == (device, [10, 12, 14, 16, 18])


def test_dlpack_device_must_be_an_extension_and_other_devices_as_before(device):
    assert torch.ones(1, device=device).__dlpack_device__() == (torch.utils.dlpack.DLDeviceType.kDLExtDev, device.index)
    assert torch.ones(1).__dlpack_device__() == (torch.utils.dlpack.DLDeviceType.kDLCPU, 0)


def test_dlpack_tensor_must_compute_resize_and_be_shared_with_the_vendor(device):
    value = torch.from_dlpack(torch.arange(4.0, device=device))
    assert (value * 2).tolist() == [0, 2, 4, 6]
    theirs = to_vendor(value)
    theirs.add_(1)
    assert value.tolist() == [1, 2, 3, 4]
    assert from_vendor(theirs).is_set_to(value)


def test_dlpack_must_refuse_what_loses_its_meaning(device):
    with pytest.raises(BufferError, match="gradient"):
        torch.from_dlpack(torch.ones(2, device=device, requires_grad=True))
    with pytest.raises(BufferError, match="conjugate"):
        torch.from_dlpack(torch.tensor([1j], device=device).conj())


def test_vendors_tensor_must_leave_by_dlpack(device):
    capsule = torch.utils.dlpack.to_dlpack(to_vendor(torch.arange(3.0, device=device)))
    assert '"dltensor"' in repr(capsule)
