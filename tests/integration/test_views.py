"""Views: what shares memory with what, and that writing through a view touches its slice alone."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.device

BASE = torch.arange(60, dtype=torch.float32).reshape(3, 4, 5)

VIEWS = [
    pytest.param(lambda x: x.view(12, 5), id="view"),
    pytest.param(lambda x: x.view(-1), id="view-flat"),
    pytest.param(lambda x: x.view(torch.int32), id="view-dtype"),
    pytest.param(lambda x: x.reshape(4, 15), id="reshape"),
    pytest.param(lambda x: x.as_strided((2, 3), (20, 2), 3), id="as_strided"),
    pytest.param(lambda x: x.transpose(0, 2), id="transpose"),
    pytest.param(lambda x: x.permute(2, 0, 1), id="permute"),
    pytest.param(lambda x: x.mT, id="mT"),
    pytest.param(lambda x: x[:, :1].expand(3, 4, 5), id="expand"),
    pytest.param(lambda x: x.unfold(2, 3, 1), id="unfold"),
    pytest.param(lambda x: x.diagonal(0, 1, 2), id="diagonal"),
    pytest.param(lambda x: x.chunk(3, dim=2)[1], id="chunk"),
    pytest.param(lambda x: x.split([1, 3], dim=1)[1], id="split"),
    pytest.param(lambda x: x.unbind(1)[2], id="unbind"),
    pytest.param(lambda x: x.narrow(1, 1, 2), id="narrow"),
    pytest.param(lambda x: x.select(0, 1), id="select"),
    pytest.param(lambda x: x[::2, 1:3], id="slice"),
    pytest.param(lambda x: x[None, ..., 0], id="index-none"),
    pytest.param(lambda x: x.unsqueeze(1), id="unsqueeze"),
    pytest.param(lambda x: x[:1].squeeze(0), id="squeeze"),
    pytest.param(lambda x: x.flatten(1), id="flatten"),
    pytest.param(lambda x: x.unflatten(2, (5, 1)), id="unflatten"),
    pytest.param(lambda x: x.movedim(0, 1), id="movedim"),
    pytest.param(lambda x: x.detach(), id="detach"),
    pytest.param(lambda x: x.view_as(x), id="alias"),
]


@pytest.mark.parametrize("make", VIEWS)
def test_view_must_have_the_values_strides_and_offset_of_cpu(agree, device, make):
    agree(make, BASE, exact=True)
    got, expected = make(BASE.to(device)), make(BASE.clone())
    assert got.stride() == expected.stride()
    assert got.storage_offset() == expected.storage_offset()


@pytest.mark.parametrize("make", VIEWS)
def test_view_must_share_the_memory_of_its_base(device, make):
    base = BASE.to(device)
    view = make(base)
    start = base.untyped_storage().data_ptr()
    assert view.untyped_storage().data_ptr() == start
    assert view.data_ptr() == start + view.storage_offset() * view.element_size()
    assert torch._C._is_alias_of(view, base)
    base.zero_()
    assert not view.any(), "a write to the base must be seen through the view"


def test_copies_must_not_share_memory(device):
    base = BASE.to(device)
    for name, copy in (("clone", base.clone()), ("contiguous", base.mT.contiguous()), ("add", base + 0)):
        assert not torch._C._is_alias_of(copy, base), name
        assert copy.data_ptr() != base.data_ptr(), name


def test_contiguous_of_a_contiguous_tensor_must_be_the_tensor_itself(device):
    base = BASE.to(device)
    assert base.contiguous() is base


WRITES = [
    pytest.param(lambda v: v.zero_(), id="zero_"),
    pytest.param(lambda v: v.fill_(7), id="fill_"),
    pytest.param(lambda v: v.copy_(torch.full_like(v, -1)), id="copy_"),
    pytest.param(lambda v: v.add_(1), id="add_"),
    pytest.param(lambda v: v.mul_(v), id="mul_"),
    pytest.param(lambda v: v.masked_fill_(v > 20, 0), id="masked_fill_"),
]
PLACES = [
    pytest.param(lambda x: x[1, 2, 1:3], id="offset"),
    pytest.param(lambda x: x[:, 1], id="strided"),
    pytest.param(lambda x: x.mT[2], id="transposed"),
    pytest.param(lambda x: x.diagonal(0, 1, 2), id="diagonal"),
    pytest.param(lambda x: x[::2, ::3, ::2], id="steps"),
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("write", WRITES)
def test_write_through_a_view_must_change_its_slice_alone(agree, write, place):
    def whole(x):
        write(place(x))
        return x

    agree(whole, BASE, exact=True)


def test_random_fill_of_a_view_must_change_its_slice_alone(device):
    base = torch.full((3, 10), 5.0, device=device)
    base[1, 4:7].normal_()
    outside = torch.ones(3, 10, dtype=torch.bool)
    outside[1, 4:7] = False
    assert bool((base.cpu()[outside] == 5).all())
    assert bool((base.cpu()[~outside] != 5).all())


OVERLAPS = [
    pytest.param(lambda x: torch.add(x[:-1], 1, out=x[1:]), id="out-partly-over-input"),
    pytest.param(lambda x: x[1:].mul_(x[:-1]), id="in-place-over-shifted-input"),
    pytest.param(lambda x: x[:1].expand(4).add_(1), id="in-place-on-expanded"),
    pytest.param(lambda x: torch.cat([x[:2], x[2:4]], out=x[1:5]), id="cat-into-own-input"),
]


@pytest.mark.parametrize("call", OVERLAPS)
def test_overlap_of_input_and_output_must_raise(device, call):
    with pytest.raises(RuntimeError, match=r"unsupported operation|overlap"):
        call(torch.arange(8.0))
    with pytest.raises(RuntimeError, match=r"unsupported operation|overlap"):
        call(torch.arange(8.0, device=device))


def test_in_place_on_exactly_the_input_must_be_allowed(agree):
    agree(lambda x: torch.add(x, x, out=x), torch.arange(8.0), exact=True)


def test_last_chunk_must_outlive_its_base(device):
    values = torch.arange(12.0)
    last = values.to(device).chunk(3)[-1]
    torch.full((12,), -1.0, device=device)  # may be given the base's memory, were it free
    assert last.tolist() == [8.0, 9.0, 10.0, 11.0]


def test_view_of_a_view_must_know_its_base(device):
    base = BASE.to(device)
    assert base[1][2]._base is base
    assert base[1]._is_view()
    assert not base.clone()._is_view()
