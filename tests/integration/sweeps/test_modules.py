"""Every module of torch.nn in PyTorch's database: outputs, and gradients of inputs and parameters."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest
import torch

from sweeps.compare import assert_agrees
from sweeps.modules import MODULES, inputs_of, is_random_module, make_module, tolerance_of_module
from sweeps.samples import Mover, tensors_in

pytestmark = pytest.mark.device


def _run(module, args, kwargs):
    """The module's output, and the gradients of its sum with respect to whatever requires one."""
    result = module(*args, **kwargs)
    wanted = [tensor for tensor in (*module.parameters(), *tensors_in([args, kwargs])) if tensor.requires_grad]
    outputs = [tensor for tensor in tensors_in(result) if tensor.requires_grad]
    if not (wanted and outputs):
        return result, None
    total = sum(output.real.sum() for output in outputs)
    return result, torch.autograd.grad(total, wanted, allow_unused=True)


RECURRENT = (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU)


def _differentiable(module, *, training):
    """CUDA's library for recurrent networks keeps nothing for a backward pass outside training, and says so."""
    if isinstance(module, RECURRENT) and not training:
        return torch.backends.cudnn.flags(enabled=False, allow_tf32=False)
    return nullcontext()


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("case", MODULES, ids=lambda case: case.id)
def test_module_must_agree_with_the_cpu(case, training, sides, device):
    tolerance = tolerance_of_module(case, software=sides.software)
    samples = inputs_of(case, training=training)
    assert samples
    for index, sample in enumerate(samples):
        module = make_module(case, sample).train(training)
        args, kwargs = sample.forward_input.args, sample.forward_input.kwargs
        limits = None if is_random_module(module, training=training) else tolerance
        mine, mover = copy.deepcopy(module).to(device), Mover(device)
        theirs = Mover(torch.device("cpu"))
        expected = _run(module, theirs(args), theirs(kwargs))
        with _differentiable(module, training=training):
            got = _run(mine, mover(args), mover(kwargs))
        assert_agrees(got, expected, tolerance=limits, where=f"input {index} ({sample.desc})")
