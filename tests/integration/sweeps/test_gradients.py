"""The gradients of every differentiable operator of PyTorch's database."""

from __future__ import annotations

import pytest
import torch

from sweeps.samples import samples_of, tensors_in, tensors_of
from sweeps.selection import sweep

pytestmark = pytest.mark.device


def _cotangent(tensor, number):
    """The same numbers on every device."""
    generator = torch.Generator().manual_seed(number)
    return torch.randn(tensor.shape, dtype=tensor.dtype, generator=generator).to(tensor.device)


@sweep("backward")
def test_gradients_must_agree_with_the_cpu(case, sides):
    def act(sample):
        inputs = [tensor for tensor in tensors_of(sample) if tensor.requires_grad]
        result = sides.result(case, sample)
        outputs = [tensor for tensor in tensors_in(result) if tensor.requires_grad]
        if not (inputs and outputs):
            return result, None
        cotangents = [_cotangent(tensor, number) for number, tensor in enumerate(outputs)]
        return result, torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)

    sides.compare(case, act, samples_of(case, count=4, requires_grad=True))
