"""Kernels below PyTorch's functions, called by their own names: against the CPU's, or what they must come to."""

from __future__ import annotations

import pytest
import torch
from operators import registered
from torch.nn import functional

from sweeps.alike import ALIKE, LIST, REALS
from sweeps.kernels import KERNELS, THETA

pytestmark = pytest.mark.device

aten = torch.ops.aten
SINGLE = {"rtol": 1e-3, "atol": 1e-4}


def needs(name):
    """Skip where the vendor has no kernel of this name."""
    if f"aten::{name}" not in registered():
        pytest.skip(f"this vendor has no kernel for aten::{name}")


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_must_return_what_it_stands_for(assert_close_on_device, name):
    needs(name)
    kernel = KERNELS[name]
    assert_close_on_device(kernel.act, kernel.expected, kernel.operands)


@pytest.fixture
def assert_close_on_device(to_device):
    """`assert_close_on_device(act, expected, operands)`: one on the device equals the other on the CPU."""

    def check(act, expected, operands):
        got, right = act(*to_device(operands)), expected(*operands)
        pairs = zip(got, right, strict=True) if isinstance(right, tuple) else [(got, right)]
        for one, other in pairs:
            assert one.device.type == "flagos"
            torch.testing.assert_close(one.cpu(), other, **SINGLE)

    return check


@pytest.mark.parametrize("name", ALIKE)
def test_kernel_must_agree_with_the_cpus(agree, name):
    needs(name)
    function, *operands = ALIKE[name]
    agree(function, *operands, tolerance=SINGLE)


ADAM = {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-6, "maximize": False}
SGD = {"weight_decay": 0.1, "momentum": 0.9, "dampening": 0.0, "nesterov": True, "maximize": False}
ADAGRAD = {"lr_decay": 0.1, "weight_decay": 0.1, "eps": 1e-6, "maximize": False}
STEPS = [torch.tensor(2.0)] * 3
# How many lists of tensors stand before the steps, whether there are steps, and the options.
FUSED = {
    "_fused_adam_": (5, True, {**ADAM, "amsgrad": True}),
    "_fused_adamw_": (5, True, {**ADAM, "amsgrad": True}),
    "_fused_adagrad_": (3, True, ADAGRAD),
    "_fused_sgd_": (3, False, {**SGD, "is_first_step": False}),
}


@pytest.mark.parametrize("rate", ["", ".tensor_lr"], ids=["number", "tensor"])
@pytest.mark.parametrize("name", FUSED)
def test_fused_optimizer_must_step_as_the_cpus_does(agree, name, rate):
    needs(name + rate)
    lists, has_steps, options = FUSED[name]
    step = getattr(getattr(aten, name), rate.removeprefix(".") or "default")

    def run(*operands):
        *state, lr = operands
        step(*state, lr=lr if rate else 0.1, **options)
        return state[0]

    state = [[tensor * number for tensor in LIST] for number in range(1, lists + 1)]
    agree(run, *state, *([STEPS] if has_steps else []), torch.tensor(0.1), tolerance=SINGLE)


def test_fused_dropout_must_scale_what_its_mask_keeps(device):
    needs("_fused_dropout")
    values = torch.rand(1000, device=device) + 1
    kept, mask = aten._fused_dropout(values, 0.75)
    torch.testing.assert_close(kept, values * mask / 0.75)
    assert 0.5 < float(mask.float().mean()) < 1


def test_lists_must_go_padded_and_back(agree):
    def there_and_back(dense, at):
        return aten._padded_dense_to_jagged_forward(dense, [at], 3)

    needs("_padded_dense_to_jagged_forward")
    agree(there_and_back, REALS.reshape(2, 2, 3), torch.tensor([0, 2, 3]))


def test_affine_grid_must_be_differentiated_alike(agree):
    def gradient(theta):
        leaf = theta.detach().requires_grad_()
        grid = functional.affine_grid(leaf, (1, 1, 3, 3), align_corners=True)
        return torch.autograd.grad(grid.square().sum(), leaf)[0]

    agree(gradient, THETA, tolerance=SINGLE)
