"""Deterministic mode, the profiler, the default device, and how modules and files move."""

from __future__ import annotations

import io
import json

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

pytestmark = pytest.mark.device


@pytest.fixture
def _deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


FACTORIES = [
    pytest.param(lambda device, dtype: torch.empty(5, device=device, dtype=dtype), id="empty"),
    pytest.param(lambda device, dtype: torch.empty_like(torch.ones(5, device=device, dtype=dtype)), id="empty_like"),
    pytest.param(lambda device, dtype: torch.empty_strided((5,), (2,), device=device, dtype=dtype), id="empty_strided"),
    pytest.param(lambda device, dtype: torch.ones(1, device=device, dtype=dtype).new_empty(5), id="new_empty"),
    pytest.param(lambda device, dtype: torch.ones(2, device=device, dtype=dtype).resize_(7)[2:], id="resize_"),
]
FILLED = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.uint8]


@pytest.mark.usefixtures("_deterministic")
@pytest.mark.parametrize("dtype", [*FILLED, torch.bool], ids=str)
@pytest.mark.parametrize("factory", FACTORIES)
def test_uninitialised_memory_must_be_filled_in_deterministic_mode(device, factory, dtype):
    value = factory(device, dtype).cpu()
    if dtype.is_floating_point or dtype.is_complex:
        assert value.isnan().all()
    else:
        assert (value == (True if dtype == torch.bool else torch.iinfo(dtype).max)).all()


@pytest.mark.usefixtures("_deterministic")
def test_operator_without_a_deterministic_kernel_must_say_so(device):
    indices = torch.tensor([0, 0], device=device)
    with pytest.raises(RuntimeError, match="put_ does not have a deterministic implementation"):
        torch.zeros(3, device=device).put_(indices, torch.ones(2, device=device))
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match="put_ does not have a deterministic implementation"):
        torch.zeros(3, device=device).put_(indices, torch.ones(2, device=device))


@pytest.mark.usefixtures("_deterministic")
def test_operators_with_a_deterministic_kernel_must_use_it(device):
    indices = torch.tensor([1, 0, 1], device=device)
    assert torch.zeros(2, device=device).index_add_(0, indices, torch.ones(3, device=device)).tolist() == [1, 2]
    assert torch.zeros(2, device=device).scatter_add_(0, indices, torch.ones(3, device=device)).tolist() == [1, 2]


def rows(profile):
    return {row.key: row for row in profile.key_averages()}


@pytest.mark.parametrize("activities", [None, ["CPU"], ["CPU", "PrivateUse1"]], ids=["default", "cpu", "device"])
def test_profiler_must_have_a_row_for_each_operator(device, activities, tmp_path):
    x = torch.ones(8, 8, device=device)
    chosen = activities and [getattr(torch.profiler.ProfilerActivity, name) for name in activities]
    with torch.profiler.profile(activities=chosen, record_shapes=True, profile_memory=True) as profile:
        (x @ x).relu_()
    found = rows(profile)
    assert {"aten::matmul", "aten::mm", "aten::relu_"} <= set(found)
    assert found["aten::mm"].count == 1
    assert found["aten::mm"].cpu_time_total > 0
    assert "aten::mm" in profile.key_averages().table()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    names = {event.get("name") for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    assert "aten::mm" in names


def test_profiler_must_measure_time_on_the_device(device):
    x = torch.ones(64, 64, device=device)
    x @ x
    with torch.autograd.profiler.profile(use_device="flagos") as profile:
        for _ in range(3):
            x = x @ x * 0.01
    found = rows(profile)
    assert found["aten::mm"].count == 3
    assert found["aten::mm"].device_time_total > 0, "microseconds"


def test_profiled_ranges_must_keep_their_names(device):
    with torch.profiler.profile() as profile, torch.profiler.record_function("forward of mine"):
        torch.ones(2, device=device).exp()
    assert "forward of mine" in rows(profile)


def test_default_device_must_be_where_factories_and_modules_make_tensors(device):
    torch.set_default_device(device)
    try:
        assert torch.get_default_device() == device
        assert {t.device for t in (torch.ones(1), torch.tensor([1]), torch.randn(2), torch.arange(3))} == {device}
        assert nn.Linear(2, 2).weight.device == device
        assert torch.ones(1, device="cpu").is_cpu
    finally:
        torch.set_default_device(None)
    assert torch.ones(1).is_cpu
    with torch.device(device):
        assert torch.empty(1).device == device
    assert torch.ones(1).is_cpu


def tied():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    return model


@pytest.mark.parametrize("swap", [False, True], ids=["set-data", "swap"])
def test_tied_weights_must_stay_one_parameter_when_the_module_moves(device, swap):
    model = tied()
    weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    torch.__future__.set_swap_module_params_on_conversion(swap)
    try:
        model.to(device)
        assert model[0].weight is model[1].weight is weight
        assert weight.device == device
        assert len(list(model.parameters())) == 1
        before = weight.detach().clone()
        model(torch.ones(1, 3, device=device)).sum().backward()
        optimizer.step()
        assert torch.equal(weight.detach(), before - weight.grad)
        model.cpu()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert model[0].weight is model[1].weight is weight
    assert weight.is_cpu


def test_overwriting_mode_must_make_new_parameters_as_on_cuda(device):
    layer = nn.Linear(2, 2)
    before = layer.weight
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        layer.to(device)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert layer.weight is not before
    assert (layer.weight.device, before.device.type) == (device, "cpu")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_module_must_load_onto_the_device_and_move(device):
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)), file)
    x = torch.ones(1, 2, device=device)
    assert torch.jit.load(io.BytesIO(file.getvalue()), map_location=device)(x).device == device
    assert torch.jit.load(io.BytesIO(file.getvalue())).to(device)(x).device == device


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("mapped", [True, False], ids=["mmap", "read"])
def test_checkpoint_file_must_load_onto_the_device(device, tmp_path, weights_only, mapped):
    base = torch.arange(6.0, device=device)
    torch.save({"base": base, "view": base[2:]}, tmp_path / "checkpoint.pt")
    loaded = torch.load(tmp_path / "checkpoint.pt", map_location=device, weights_only=weights_only, mmap=mapped)
    assert loaded["base"].device == loaded["view"].device == device
    loaded["base"].zero_()
    assert loaded["view"].tolist() == [0] * 4
    assert base.tolist() == [0, 1, 2, 3, 4, 5]


def test_pinned_memory_must_be_reusable_after_a_copy_that_does_not_block(device):
    source = torch.arange(1 << 16).pin_memory()
    target = source.to(device, non_blocking=True)
    torch.flagos.current_stream().synchronize()
    source.zero_()
    assert torch.equal(target.cpu(), torch.arange(1 << 16))


COPIES = ("aten::copy_", "aten::_to_copy", "aten::_local_scalar_dense")


class Calls(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped where the type checker runs
    """Notes the operators that reach the device."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def test_optimizer_must_step_without_copies_between_host_and_device(device):
    """Backends outside PyTorch's lists fall back to one tensor at a time, or to the CPU."""
    parameters = [torch.ones(4, device=device, requires_grad=True) for _ in range(3)]
    optimizer = torch.optim.SGD(parameters, lr=0.5, momentum=0.9, foreach=True)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    with Calls() as calls:
        optimizer.step()
    assert "aten::_foreach_add_" in calls.names
    assert not {"aten::add_", "aten::mul_", *COPIES} & set(calls.names)


@pytest.mark.parametrize("name", ["AdamW", "Adam", "SGD"])
def test_fused_optimizer_must_equal_the_plain_one(device, name):
    def trained(**options):
        parameters = [torch.linspace(0, 1, 5, device=device).requires_grad_() for _ in range(2)]
        optimizer = getattr(torch.optim, name)(parameters, lr=0.1, **options)
        for _ in range(3):
            for parameter in parameters:
                parameter.grad = parameter.detach() * 2
            optimizer.step()
        return parameters

    for got, expected in zip(trained(fused=True), trained(foreach=False), strict=True):
        torch.testing.assert_close(got, expected)


def test_absent_function_must_say_why():
    with pytest.raises(AttributeError, match="recorded graphs"):
        torch.flagos.CUDAGraph  # noqa: B018 - asking is the test
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        torch.flagos.nonsense  # noqa: B018 - asking is the test
    torch.flagos.ipc_collect()
