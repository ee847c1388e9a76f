"""Copies between host and device, device and device, and two devices."""

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


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_trip_must_keep_every_bit(device, dtype):
    source = torch.arange(-8, 9).to(dtype)
    there = source.to(device)
    assert there.device == device
    assert there.dtype == dtype
    back = there.cpu()
    assert back.device.type == "cpu"
    assert torch.equal(back, source)


def test_round_trip_must_keep_nan_infinity_and_negative_zero(device):
    source = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45])
    assert torch.equal(source.to(device).cpu().view(torch.int32), source.view(torch.int32))


CASTS = [
    pytest.param(torch.float32, torch.float16, id="float32-float16"),
    pytest.param(torch.float16, torch.float64, id="float16-float64"),
    pytest.param(torch.bfloat16, torch.float32, id="bfloat16-float32"),
    pytest.param(torch.float64, torch.int64, id="float64-int64"),
    pytest.param(torch.int64, torch.uint8, id="int64-uint8"),
    pytest.param(torch.float32, torch.bool, id="float32-bool"),
    pytest.param(torch.bool, torch.float32, id="bool-float32"),
    pytest.param(torch.int32, torch.complex64, id="int32-complex64"),
]


@pytest.mark.parametrize(("source", "target"), CASTS)
def test_cast_on_the_way_and_on_the_device_must_equal_cpu(device, assert_same, source, target):
    values = torch.arange(0, 40).to(source)
    expected = values.to(target)
    assert_same(values.to(device, target), expected, exact=True)
    assert_same(values.to(device).to(target), expected, exact=True)
    assert torch.equal(values.to(device).to("cpu", target), expected)
    assert_same(torch.empty(40, dtype=target, device=device).copy_(values), expected, exact=True)


LAYOUTS = [
    pytest.param(lambda x: x.t(), id="transposed"),
    pytest.param(lambda x: x[::2], id="rows"),
    pytest.param(lambda x: x[:, 1::3], id="columns"),
    pytest.param(lambda x: x[1:2].expand(6, 8), id="expanded"),
    pytest.param(lambda x: x.diagonal(), id="diagonal"),
    pytest.param(lambda x: x[2:, 3:], id="offset"),
    pytest.param(lambda x: x.unfold(0, 2, 1), id="unfold"),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_non_contiguous_source_must_arrive_whole_in_each_direction(device, layout):
    source = layout(torch.arange(48.0).reshape(6, 8))
    there = source.to(device)
    assert there.stride() == source.clone().stride()
    assert torch.equal(there.cpu(), source)
    view = layout(torch.arange(48.0, device=device).reshape(6, 8))
    assert torch.equal(view.cpu(), source)
    assert torch.equal(view.clone().cpu(), source)
    assert torch.equal(view.contiguous().cpu(), source)


TARGETS = [
    pytest.param(lambda x: x.t(), id="transposed"),
    pytest.param(lambda x: x[::2], id="rows"),
    pytest.param(lambda x: x[:, 1::3], id="columns"),
    pytest.param(lambda x: x.diagonal(), id="diagonal"),
]


@pytest.mark.parametrize("source_device", ["cpu", "flagos"])
@pytest.mark.parametrize("layout", TARGETS)
def test_copy_into_a_non_contiguous_target_must_leave_the_rest_alone(device, layout, source_device):
    def filled(place):
        target = torch.zeros(6, 8, device=place)
        part = layout(target)
        values = torch.arange(float(part.numel())).reshape(part.shape) + 1
        part.copy_(values.to(device) if source_device == "flagos" and place != "cpu" else values)
        return target

    assert torch.equal(filled(device).cpu(), filled("cpu"))


def test_copy_to_the_host_into_a_non_contiguous_target_must_leave_the_rest_alone(device):
    target = torch.zeros(4, 6)
    target[:, ::2].copy_(torch.ones(4, 3, device=device))
    assert target.sum() == 12
    assert not target[:, 1::2].any()


def test_copy_must_broadcast_as_on_the_cpu(device):
    target = torch.zeros(3, 4, device=device)
    assert target.copy_(torch.arange(4.0)) is target
    assert torch.equal(target.cpu(), torch.arange(4.0).expand(3, 4))


def test_copy_of_a_shape_that_does_not_fit_must_raise_and_change_nothing(device):
    target = torch.zeros(3, device=device)
    with pytest.raises(RuntimeError, match="size"):
        target.copy_(torch.ones(4, device=device))
    assert not target.any()


def test_copy_onto_itself_must_change_nothing(device):
    values = torch.arange(5.0, device=device)
    assert torch.equal(values.copy_(values).cpu(), torch.arange(5.0))


def test_non_blocking_copies_must_be_complete_after_synchronize(device):
    source = torch.arange(1 << 16, dtype=torch.float32)
    there = source.to(device, non_blocking=True)
    back = there.to("cpu", non_blocking=True)
    torch.flagos.synchronize()
    assert torch.equal(back, source)


def test_pinned_memory_must_be_pinned_and_copy_right(device):
    pinned = torch.arange(1024.0).pin_memory()
    assert pinned.is_pinned()
    assert pinned.device.type == "cpu"
    assert not torch.arange(4.0).is_pinned()
    there = pinned.to(device, non_blocking=True)
    torch.flagos.synchronize()
    assert torch.equal(there.cpu(), torch.arange(1024.0))


def test_memory_pinned_by_a_factory_must_be_pinned():
    assert torch.empty(8, pin_memory=True).is_pinned()


def test_data_loader_with_pinned_memory_must_give_pinned_batches(device):
    data = torch.utils.data.TensorDataset(torch.arange(12.0).reshape(6, 2))
    batches = [batch[0] for batch in torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True)]
    assert all(batch.is_pinned() for batch in batches)
    assert torch.equal(torch.cat([batch.to(device) for batch in batches]).cpu(), data.tensors[0])


def test_tensor_on_the_device_already_must_not_be_copied(device):
    values = torch.ones(3, device=device)
    assert values.to(device) is values
    assert values.to(device, copy=True).data_ptr() != values.data_ptr()


def test_device_methods_must_move_tensors_and_modules(device):
    assert torch.ones(2).flagos().device == device
    assert torch.ones(2).flagos().is_flagos
    assert not torch.ones(2).is_flagos
    module = torch.nn.Linear(2, 2).to(device)
    assert {parameter.device for parameter in module.parameters()} == {device}
    assert {parameter.device.type for parameter in module.cpu().parameters()} == {"cpu"}


def test_copy_between_devices_must_keep_values(device, other_device):
    source = torch.arange(100.0).reshape(10, 10)
    here = source.to(device)
    there = here.to(other_device)
    assert there.device == other_device
    assert torch.equal(there.cpu(), source)
    assert torch.equal(here.t().to(other_device).cpu(), source.t())
    assert torch.equal(torch.zeros(10, 10, device=device).copy_(there).cpu(), source)
    assert torch.flagos.current_device() == device.index


def test_copy_must_carry_the_gradient_back_to_the_host(device):
    source = torch.arange(3.0, requires_grad=True)
    (source.to(device) * 2).sum().backward()
    assert source.grad is not None
    assert source.grad.device.type == "cpu"
    assert torch.equal(source.grad, torch.full((3,), 2.0))


def test_numpy_must_be_refused_on_the_device_and_work_after_cpu(device):
    values = torch.arange(3.0, device=device)
    with pytest.raises(TypeError, match=r"flagos|device"):
        values.numpy()
    assert values.cpu().numpy().tolist() == [0.0, 1.0, 2.0]


def test_channels_last_must_survive_the_round_trip(device):
    image = torch.arange(120.0).reshape(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    there = image.to(device)
    assert there.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(there.cpu(), image)


def test_parameters_tied_on_the_host_must_stay_tied_on_the_device(device):
    model = torch.nn.ModuleDict({"first": torch.nn.Linear(3, 3), "second": torch.nn.Linear(3, 3)})
    model.second.weight = model.first.weight
    weight = model.first.weight
    assert model.to(device) is model
    assert model.first.weight is model.second.weight is weight
    assert len(list(model.parameters())) == 3
    model.cpu()
    assert model.first.weight is model.second.weight is weight
