"""Operators that PyTorch's database does not reach: called by their own names, as libraries above PyTorch call them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

pytestmark = pytest.mark.device

aten = torch.ops.aten
INTS = torch.arange(1, 7).reshape(2, 3)
REALS = torch.linspace(-2, 2, 12).reshape(3, 4)
SORTED = torch.linspace(0, 1, 6)
VOLUME = torch.arange(24.0).reshape(1, 2, 2, 2, 3)
IMAGE = torch.linspace(0, 1, 32).reshape(1, 2, 4, 4)

CALLS = {
    "lshift_scalar": (lambda x: aten.__lshift__.Scalar(x, 1), INTS),
    "lshift": (aten.__lshift__.Tensor, INTS, torch.ones_like(INTS)),
    "ilshift": (aten.__ilshift__.Tensor, INTS, torch.ones_like(INTS)),
    "ilshift_scalar": (lambda x: aten.__ilshift__.Scalar(x, 1), INTS),
    "rshift_scalar": (lambda x: aten.__rshift__.Scalar(x, 1), INTS),
    "rshift": (aten.__rshift__.Tensor, INTS, torch.ones_like(INTS)),
    "irshift": (aten.__irshift__.Tensor, INTS, torch.ones_like(INTS)),
    "irshift_scalar": (lambda x: aten.__irshift__.Scalar(x, 1), INTS),
    "addmm_activation": (aten._addmm_activation, torch.ones(4), REALS, torch.eye(4)),
    "aminmax": (aten._aminmax, REALS),
    "aminmax_dim": (lambda x: aten._aminmax.dim(x, 1), REALS),
    "coo_to_csr": (lambda x: aten._convert_indices_from_coo_to_csr(x, 4), torch.tensor([0, 0, 1, 3])),
    "csr_to_coo": (aten._convert_indices_from_csr_to_coo, torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1])),
    "standard_gamma_grad": (aten._standard_gamma_grad, REALS.abs() + 1, REALS.abs() + 0.5),
    "stack": (lambda x, y: aten._stack([x, y], 1), REALS, REALS + 1),
    "bucketize_scalar": (lambda x: aten.bucketize.Scalar(0.5, x), SORTED),
    "searchsorted_scalar": (lambda x: aten.searchsorted.Scalar(x, 0.5), SORTED),
    "isin_scalar_tensor": (lambda x: aten.isin.Scalar_Tensor(3, x), INTS),
    "isin_tensor_scalar": (lambda x: aten.isin.Tensor_Scalar(x, 3), INTS),
    "native_channel_shuffle": (lambda x: torch.native_channel_shuffle(x, 2), IMAGE),
    "reflection_pad3d": (lambda x: aten.reflection_pad3d(x, [1, 1, 1, 1, 1, 1]), VOLUME),
    "replication_pad3d": (lambda x: aten.replication_pad3d(x, [1, 1, 1, 1, 1, 1]), VOLUME),
    "remainder_of_scalar": (lambda x: aten.remainder.Scalar_Tensor(7, x), INTS),
    "unique_dim_consecutive": (lambda x: torch.unique_consecutive(x, dim=0), INTS // 4),
    "bicubic_antialias": (lambda x: aten._upsample_bicubic2d_aa(x, [3, 3], False), IMAGE),
    "norm_with_dtype": (lambda x: torch.norm(x, 2, dim=[1], dtype=torch.float64), REALS),
    "clamp_max_out": (lambda x: torch.clamp_max(x, 0.5, out=torch.empty_like(x)), REALS),
    "weight_norm": (lambda x: aten._weight_norm_interface(x, x[:, :1].contiguous(), 0)[0], REALS),
    "int_mm": (lambda x: torch._int_mm(x, x), torch.arange(1024).remainder(5).reshape(32, 32).to(torch.int8)),
    "assert_async": (lambda x: aten._assert_async(x) or x, torch.tensor(True)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_operator_must_agree_with_the_cpu(agree, call):
    function, *operands = call
    agree(function, *operands)


def test_gelu_of_a_product_must_agree_with_the_cpu(agree):
    def act(bias, left, right):
        return aten._addmm_activation(bias, left, right, use_gelu=True)

    # The vendor's library approximates it by tanh, whatever the CPU does.
    agree(act, torch.ones(4), REALS, torch.eye(4), tolerance={"rtol": 2e-3, "atol": 2e-3})


GRADIENTS = {
    "reflection_pad3d": (lambda x: functional.pad(x, (1, 1, 1, 1, 1, 1), mode="reflect"), VOLUME),
    "replication_pad3d": (lambda x: functional.pad(x, (1, 1, 1, 1, 1, 1), mode="replicate"), VOLUME),
    "bicubic_antialias": (lambda x: functional.interpolate(x, (3, 3), mode="bicubic", antialias=True), IMAGE),
    "nearest_exact": (lambda x: functional.interpolate(x, (3, 3), mode="nearest-exact"), IMAGE),
    "weight_norm": (lambda x: torch._weight_norm(x, x[:, :1], 0), REALS),
    "embedding_bag": (
        lambda x: functional.embedding_bag(torch.zeros(1, 3, dtype=torch.long, device=x.device), x, mode="sum").sum(),
        REALS,
    ),
}


@pytest.mark.parametrize("call", GRADIENTS.values(), ids=GRADIENTS.keys())
def test_gradient_must_agree_with_the_cpu(agree, call):
    function, operand = call

    def gradient(x):
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(function(leaf).square().sum(), leaf)[0]

    agree(gradient, operand)


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(torch.poisson, id="poisson"),
        pytest.param(lambda x: torch.binomial(x, x / 10), id="binomial"),
        pytest.param(torch._standard_gamma, id="standard_gamma"),
        pytest.param(torch._sample_dirichlet, id="dirichlet"),
        pytest.param(lambda x: torch.normal(0.0, x), id="normal_float_tensor"),
        pytest.param(lambda x: x.random_(1, 7), id="random_from_to"),
        pytest.param(lambda x: x.random_(7), id="random_to"),
        pytest.param(lambda x: x.random_(), id="random"),
    ],
)
def test_random_numbers_must_be_the_same_after_the_same_seed(device, draw):
    numbers = []
    for _ in range(2):
        torch.manual_seed(11)
        numbers.append(draw(torch.full((50,), 5.0, device=device)))
    assert numbers[0].device.type == "flagos"
    assert torch.equal(numbers[0], numbers[1])
    assert numbers[0].unique().numel() > 1


def test_forward_derivative_of_glu_must_agree_with_the_cpu(agree):
    agree(lambda x, t: torch.func.jvp(lambda one: functional.glu(one, -1), (x,), (t,)), REALS, REALS * 2)


def test_masked_scale_must_keep_what_the_mask_keeps(to_device):
    values, mask = to_device(REALS), to_device((REALS > 0).byte())
    torch.testing.assert_close(aten._masked_scale(values, mask, 2.0), values * mask * 2)
