"""Optimizers: a few steps end where they end on the CPU, one tensor at a time or many at once."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.device

OPTIMIZERS = [
    pytest.param(torch.optim.SGD, {"lr": 0.1}, id="sgd"),
    pytest.param(torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}, id="sgd-nesterov"),
    pytest.param(torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}, id="sgd-decay"),
    pytest.param(torch.optim.Adam, {"lr": 0.01}, id="adam"),
    pytest.param(torch.optim.Adam, {"lr": 0.01, "amsgrad": True}, id="adam-amsgrad"),
    pytest.param(torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}, id="adamw"),
    pytest.param(torch.optim.RMSprop, {"lr": 0.01}, id="rmsprop"),
    pytest.param(torch.optim.Adagrad, {"lr": 0.01}, id="adagrad"),
    pytest.param(torch.optim.NAdam, {"lr": 0.01}, id="nadam"),
]


def make_model():
    torch.manual_seed(12)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def train(model, kind, options, source):
    optimizer = kind(model.parameters(), **options)
    for _ in range(5):
        optimizer.zero_grad()
        model(source).square().mean().backward()
        optimizer.step()
    return optimizer


@pytest.mark.parametrize("foreach", [None, True, False], ids=["default", "foreach", "loop"])
@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS)
def test_training_must_end_where_the_cpu_ends(device, kind, options, foreach):
    here = make_model()
    there, source = copy.deepcopy(here).to(device), torch.randn(10, 6)
    train(here, kind, {**options, "foreach": False}, source)
    optimizer = train(there, kind, {**options, "foreach": foreach}, source.to(device))
    for one, other in zip(there.parameters(), here.parameters(), strict=True):
        assert one.device == device
        torch.testing.assert_close(one.detach().cpu(), other.detach(), rtol=1e-4, atol=1e-5)
    state = [value for entry in optimizer.state.values() for value in entry.values() if isinstance(value, torch.Tensor)]
    assert {value.device.type for value in state if value.dim()} <= {"flagos"}


def test_state_must_survive_save_and_load(device):
    model = make_model().to(device)
    source = torch.randn(4, 6).to(device)
    optimizer = train(model, torch.optim.Adam, {"lr": 0.01}, source)
    second = torch.optim.Adam(model.parameters(), lr=0.5)
    second.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    parameter = next(iter(model.parameters()))
    torch.testing.assert_close(second.state[parameter]["exp_avg"], optimizer.state[parameter]["exp_avg"])
    assert second.param_groups[0]["lr"] == 0.01


def test_tied_weights_must_be_stepped_once(device):
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    model.to(device)
    weight = model[0].weight
    before = weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(torch.ones(1, 3, device=device)).sum().backward()
    slope = weight.grad.clone()
    optimizer.step()
    torch.testing.assert_close(model[1].weight.detach(), before - slope)


def test_scheduler_must_change_the_rate(device):
    weight = nn.Parameter(torch.ones(1, device=device))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    for _ in range(2):
        weight.grad = torch.ones(1, device=device)
        optimizer.step()
        scheduler.step()
    assert weight.item() == 1 - 1 - 0.5


def test_averaged_model_must_equal_cpu(device):
    here = make_model()
    there = copy.deepcopy(here).to(device)
    averages = []
    for model in (here, there):
        average = torch.optim.swa_utils.AveragedModel(model)
        for _ in range(2):
            with torch.no_grad():
                torch._foreach_mul_(list(model.parameters()), 2.0)
            average.update_parameters(model)
        averages.append([value.detach().cpu() for value in average.module.parameters()])
    torch.testing.assert_close(averages[1], averages[0])
