"""What must hold on a machine without a device as well: names, counts, refusals, and the CPU as it ever was."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn


def beyond() -> str:
    """The first device that does not exist."""
    return f"flagos:{torch.flagos.device_count()}"


def test_availability_must_agree_with_the_device_count():
    assert isinstance(torch.flagos.device_count(), int)
    assert torch.flagos.is_available() is (torch.flagos.device_count() > 0)
    assert torch.accelerator.device_count() == torch.flagos.device_count()
    assert torch.accelerator.is_available() == torch.flagos.is_available()


def test_device_objects_must_exist_without_their_device():
    device = torch.device("flagos", 3)
    assert (device.type, device.index, str(device)) == ("flagos", 3, "flagos:3")
    assert device == torch.device("flagos:3") != torch.device("flagos:2")
    assert torch.device("flagos").index is None
    assert pickle.loads(pickle.dumps(device)) == device  # noqa: S301 - written in this line
    assert copy.deepcopy(device) == device


CALLS = [
    pytest.param(lambda: torch.zeros(1, device=beyond()), id="zeros"),
    pytest.param(lambda: torch.empty(1, device=beyond()), id="empty"),
    pytest.param(lambda: torch.randn(1, device=beyond()), id="randn"),
    pytest.param(lambda: torch.ones(1).to(beyond()), id="to"),
    pytest.param(lambda: nn.Linear(1, 1).to(beyond()), id="module-to"),
    pytest.param(lambda: torch.flagos.set_device(torch.flagos.device_count()), id="set_device"),
    pytest.param(lambda: torch.flagos.get_device_properties(torch.flagos.device_count()), id="properties"),
    pytest.param(lambda: torch.flagos.synchronize(torch.flagos.device_count()), id="synchronize"),
    pytest.param(lambda: torch.Generator(device=beyond()), id="generator"),
]


@pytest.mark.parametrize("call", CALLS)
def test_use_of_a_device_that_does_not_exist_must_be_a_clear_error(call):
    with pytest.raises((RuntimeError, ValueError, AssertionError, IndexError), match=r"(?i)device"):
        call()


@pytest.mark.parametrize("text", ["flagoss", "flagos1", "flagos:x", "flagos:-2"])
def test_wrong_device_text_must_be_refused(text):
    with pytest.raises(RuntimeError):
        torch.zeros(1, device=text)


def test_host_tensor_must_say_that_it_is_not_on_the_device():
    assert not torch.zeros(1).is_flagos
    assert torch.zeros(1).device == torch.device("cpu")


def test_default_generators_must_be_one_per_device():
    assert len(torch.flagos.default_generators) == torch.flagos.device_count()


def test_seeding_must_work_and_seed_the_cpu():
    torch.manual_seed(3)
    first = torch.rand(4)
    torch.flagos.manual_seed_all(99)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(4), first)


def test_training_on_the_cpu_must_work_as_ever():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    source = torch.randn(32, 4)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = (model(source) - source.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_sharing_memory_with_numpy_must_work_as_ever():
    values = torch.arange(4.0)
    values.numpy()[0] = 9
    assert values.tolist() == [9, 1, 2, 3]


def test_saving_and_loading_on_the_cpu_must_work_as_ever(tmp_path):
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt")["weight"].device.type == "cpu"


def test_meta_tensors_must_work_as_ever():
    assert (torch.empty(3, 4, device="meta") @ torch.empty(4, 5, device="meta")).shape == (3, 5)


def test_worker_processes_of_a_data_loader_must_end_well(run_ok):
    told = run_ok(
        "import torch_fl, torch\n"
        "data = torch.utils.data.TensorDataset(torch.arange(8.0))\n"
        "loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)\n"
        "print([batch[0].tolist() for batch in loader])\n"
    )
    assert told == "[[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]\n"


def test_current_device_must_be_asked_without_starting_anything(run_ok):
    """A library may ask at import; with no driver there is no context to make, and no traceback."""
    told = run_ok("import torch_fl, torch\nprint(torch.flagos.device_count() >= 0, torch.flagos.is_initialized())")
    assert told == "True False\n"
