"""Optimizers: a few steps end where they end on the CPU, one tensor at a time or many at once."""

from __future__ import annotations

import copy
import math

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


SHAPES = [(6, 8), (8,), (3, 2, 4), (1,)]


def make_parameters(place):
    return [nn.Parameter(torch.linspace(-1, 1, math.prod(shape)).reshape(shape).to(place)) for shape in SHAPES]


def train(parameters, kind, options):
    """Step with gradients that are given, so that only the optimizer's own arithmetic is compared."""
    optimizer = kind(parameters, **options)
    for step in range(5):
        for value in parameters:
            value.grad = torch.sin(torch.arange(float(value.numel())) + step).reshape(value.shape).to(value.device)
        optimizer.step()
    return optimizer


@pytest.mark.parametrize("foreach", [None, True, False], ids=["default", "foreach", "loop"])
@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS)
def test_training_must_end_where_the_cpu_ends(device, kind, options, foreach):
    here, there = make_parameters("cpu"), make_parameters(device)
    train(here, kind, {**options, "foreach": False})
    optimizer = train(there, kind, {**options, "foreach": foreach})
    assert {value.device for value in there} == {device}
    torch.testing.assert_close([value.detach().cpu() for value in there], [value.detach() for value in here])
    state = [value for entry in optimizer.state.values() for value in entry.values() if isinstance(value, torch.Tensor)]
    assert {value.device for value in state if value.dim()} <= {device}


def test_state_must_survive_save_and_load(device):
    parameters = make_parameters(device)
    optimizer = train(parameters, torch.optim.Adam, {"lr": 0.01})
    second = torch.optim.Adam(parameters, lr=0.5)
    second.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    moments = second.state[parameters[0]]["exp_avg"]
    assert moments.device == device
    torch.testing.assert_close(moments, optimizer.state[parameters[0]]["exp_avg"])
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
    averages = []
    for place in ("cpu", device):
        model = nn.Linear(3, 2).to(place)
        average = torch.optim.swa_utils.AveragedModel(model)
        for value in (1.0, 4.0):
            with torch.no_grad():
                torch._foreach_zero_(list(model.parameters()))
                torch._foreach_add_(list(model.parameters()), value)
            average.update_parameters(model)
        averages.append([value.detach().cpu() for value in average.module.parameters()])
    torch.testing.assert_close(averages[1], averages[0])
