"""Saving and loading: to which device, by which name, and readable without the plugin."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch

pytestmark = pytest.mark.device


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str)
def test_saved_tensor_must_come_back_on_its_device(device, dtype):
    value = torch.arange(5).to(dtype).to(device)
    back = torch.load(saved(value))
    assert back.device == device
    assert back.dtype == dtype
    assert torch.equal(back, value)


TARGETS = [
    pytest.param("cpu", "cpu", id="cpu"),
    pytest.param("flagos", "flagos", id="flagos"),
    pytest.param("flagos:0", "flagos", id="flagos-0"),
    pytest.param(torch.device("cpu"), "cpu", id="device-cpu"),
    pytest.param(torch.device("flagos", 0), "flagos", id="device-flagos"),
    pytest.param(lambda storage, _place: storage, "cpu", id="function"),
]


@pytest.mark.parametrize("source", ["cpu", "flagos"])
@pytest.mark.parametrize(("target", "expected"), TARGETS)
def test_map_location_must_decide_where_tensors_go(target, expected, source):
    value = torch.arange(5.0, device=source)
    back = torch.load(saved(value), map_location=target)
    assert back.device.type == expected
    assert back.tolist() == [0, 1, 2, 3, 4]


def test_map_of_names_must_move_between_devices(device, other_device):
    value = torch.arange(3.0, device=device)
    assert torch.load(saved(value), map_location={str(device): str(other_device)}).device == other_device
    assert torch.load(saved(value), map_location={str(device): "cpu"}).device.type == "cpu"


@pytest.mark.parametrize("name", ["flagos1", "flagoss", "flagos:99"])
def test_wrong_name_must_be_refused(device, name):
    with pytest.raises((RuntimeError, ValueError)):
        torch.load(saved(torch.ones(1, device=device)), map_location=name)


def test_views_of_one_storage_must_still_share_it(device):
    base = torch.arange(6.0, device=device)
    base_back, view_back = torch.load(saved([base, base[2:4]]))
    base_back.zero_()
    assert view_back.tolist() == [0, 0]
    assert view_back.device == device


def test_parameters_that_are_tied_must_come_back_tied(device):
    weight = torch.nn.Parameter(torch.ones(2, device=device))
    one, other = torch.load(saved([weight, weight]))
    assert one.data_ptr() == other.data_ptr()
    assert isinstance(one, torch.nn.Parameter)


def test_state_of_a_module_must_load_from_either_side(device):
    torch.manual_seed(2)
    here = torch.nn.Linear(3, 2)
    there = copy.deepcopy(here).to(device)
    fresh = torch.nn.Linear(3, 2).to(device)
    fresh.load_state_dict(torch.load(saved(here.state_dict())))
    assert torch.equal(fresh.weight, there.weight)
    assert fresh.weight.device == device
    plain = torch.nn.Linear(3, 2)
    plain.load_state_dict(torch.load(saved(there.state_dict()), map_location="cpu"))
    assert torch.equal(plain.weight, here.weight)


def test_pickle_must_keep_the_device(device):
    value = pickle.loads(pickle.dumps(torch.arange(3.0, device=device)))  # noqa: S301 - written in this line
    assert value.device == device
    assert value.tolist() == [0, 1, 2]


def test_non_contiguous_tensor_must_keep_strides_and_values(device):
    value = torch.arange(12.0, device=device).reshape(3, 4).t()
    back = torch.load(saved(value))
    assert back.stride() == value.stride()
    assert torch.equal(back, value)


def test_tensor_that_needs_grad_must_come_back_so(device):
    assert torch.load(saved(torch.ones(2, device=device, requires_grad=True))).requires_grad


def test_file_must_be_readable_on_the_cpu_without_the_plugin(device, python, tmp_path):
    torch.save({"weight": torch.arange(4.0, device=device)}, tmp_path / "model.pt")
    done = python("import torch\nprint(torch.load('model.pt', map_location='cpu')['weight'].tolist())")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0.0, 1.0, 2.0, 3.0]\n"


def test_memory_mapped_file_must_load_on_the_host_and_move(device, tmp_path):
    torch.save(torch.arange(100.0), tmp_path / "big.pt")
    value = torch.load(tmp_path / "big.pt", mmap=True)
    assert torch.equal(value.to(device).cpu(), torch.arange(100.0))
