"""Mixed precision: what autocast casts is what it casts on cuda, and gradients are scaled."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - the name that PyTorch's documentation gives it

pytestmark = pytest.mark.device

PRECISIONS = [torch.float16, torch.bfloat16]


def test_lists_of_autocast_must_be_those_of_cuda():
    """PyTorch's rules for cuda are in its CPU library too, so that every backend can compare."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    ours, theirs = set(registered("AutocastPrivateUse1")), set(registered("AutocastCUDA"))
    # Where CUDA's library adds this one, flagos casts before it calls it; see the test of a recurrent network below.
    assert (sorted(ours - theirs), sorted(theirs - ours - {"aten::_cudnn_rnn"})) == ([], [])


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("given", [torch.float32, torch.float16], ids=str)
def test_recurrent_network_must_run_in_the_lower_precision(device, kind, given):
    network = kind(5, 4)
    mine = kind(5, 4).to(device)
    mine.load_state_dict(network.state_dict())
    steps = torch.randn(3, 2, 5).to(given)
    with torch.autocast("flagos", dtype=torch.float16):
        output, _ = mine(steps.to(device))
        output.sum().backward()
    expected, _ = network(steps.float())
    assert output.dtype == torch.float16
    torch.testing.assert_close(output.detach().cpu().float(), expected.detach(), rtol=2e-2, atol=2e-2)
    assert all(weight.grad.dtype == torch.float32 for weight in mine.parameters())


def test_default_precision_must_be_that_of_cuda():
    assert torch.get_autocast_dtype("flagos") == torch.get_autocast_dtype("cuda") == torch.float16
    assert torch.amp.is_autocast_available("flagos")


LOWER = [
    pytest.param(lambda x: x @ x, id="matmul"),
    pytest.param(lambda x: F.linear(x, x), id="linear"),
    pytest.param(lambda x: torch.addmm(x, x, x), id="addmm"),
    pytest.param(lambda x: torch.bmm(x[None], x[None]), id="bmm"),
    pytest.param(lambda x: F.conv1d(x[None], x[:, :, None]), id="conv1d"),
    pytest.param(lambda x: torch.einsum("ij,jk->ik", x, x), id="einsum"),
]


@pytest.mark.parametrize("precision", PRECISIONS, ids=str)
@pytest.mark.parametrize("function", LOWER)
def test_products_must_be_computed_in_lower_precision(device, function, precision):
    x = torch.ones(4, 4, device=device)
    with torch.autocast("flagos", dtype=precision):
        result = function(x)
    assert result.dtype == precision
    assert torch.equal(result.cpu().float(), function(torch.ones(4, 4)))


FULL = [
    pytest.param(lambda x: x.exp(), id="exp"),
    pytest.param(lambda x: x.log(), id="log"),
    pytest.param(lambda x: x.pow(2), id="pow"),
    pytest.param(lambda x: x.softmax(0), id="softmax"),
    pytest.param(lambda x: x.sum(), id="sum"),
    pytest.param(lambda x: x.cumsum(0), id="cumsum"),
    pytest.param(lambda x: F.layer_norm(x, (4,)), id="layer_norm"),
    pytest.param(lambda x: F.mse_loss(x, x), id="mse_loss"),
    pytest.param(lambda x: x.norm(), id="norm"),
]


@pytest.mark.parametrize("function", FULL)
def test_delicate_operators_must_be_computed_in_float32(device, function):
    x = torch.ones(4, 4, device=device, dtype=torch.float16)
    with torch.autocast("flagos"):
        assert function(x).dtype == torch.float32


def test_mixed_operands_must_be_promoted_to_the_widest(device):
    half, single = torch.ones(4, device=device, dtype=torch.float16), torch.ones(4, device=device)
    with torch.autocast("flagos"):
        assert torch.addcmul(half, half, single).dtype == torch.float32
        assert torch.addcmul(half, half, half).dtype == torch.float16


def test_other_operators_and_data_types_must_stay_as_they_are(device):
    single, double = torch.ones(4, 4, device=device), torch.ones(4, 4, device=device, dtype=torch.float64)
    with torch.autocast("flagos"):
        assert (single + single).dtype == torch.float32
        assert (double @ double).dtype == torch.float64
        assert torch.zeros(2, device=device).dtype == torch.float32


def test_asking_for_a_data_type_must_overrule_the_list(device):
    with torch.autocast("flagos"):
        assert torch.ones(4, device=device, dtype=torch.float16).sum(dtype=torch.float64).dtype == torch.float64


def test_nested_and_disabled_regions_must_each_have_their_rule(device):
    x = torch.ones(4, 4, device=device)
    with torch.autocast("flagos"):
        with torch.autocast("flagos", dtype=torch.bfloat16):
            assert (x @ x).dtype == torch.bfloat16
        with torch.autocast("flagos", enabled=False):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.float16
    assert (x @ x).dtype == torch.float32
    assert not torch.is_autocast_enabled("flagos")


def test_float32_must_be_accepted_and_change_nothing(device, recwarn):
    x = torch.ones(4, 4, device=device)
    with torch.autocast("flagos", dtype=torch.float32):
        assert (x @ x).dtype == torch.float32
    assert not recwarn.list


def test_data_type_of_no_use_must_warn_and_disable(device):
    with pytest.warns(UserWarning, match="(?i)flagos.*not supported"), torch.autocast("flagos", dtype=torch.float64):
        assert (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).dtype == torch.float32


def test_host_tensors_inside_must_not_be_cast(device):
    host = torch.ones(4, 4)
    with torch.autocast("flagos"):
        assert (host @ host).dtype == torch.float32
        assert (host.to(device) @ host.to(device)).dtype == torch.float16


def test_device_tensors_must_not_be_cast_by_the_hosts_autocast(device):
    x = torch.ones(4, 4, device=device)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.float32


def test_autocast_as_decorator_must_cast(device):
    @torch.autocast("flagos")
    def product(x):
        return x @ x

    assert product(torch.ones(2, 2, device=device)).dtype == torch.float16


def casts_of_one_weight(device, *, cached):
    weight = torch.ones(4, 4, device=device, requires_grad=True)
    x = torch.ones(4, 4, device=device, dtype=torch.float16)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:  # noqa: SIM117 - the order
        with torch.autocast("flagos", cache_enabled=cached):
            for _ in range(3):
                F.linear(x, weight)
    return sum(row.count for row in profile.key_averages() if row.key == "aten::_to_copy")


def test_weight_must_be_cast_once_in_a_region_with_a_cache(device):
    assert casts_of_one_weight(device, cached=True) == 1
    assert casts_of_one_weight(device, cached=False) == 3


def test_gradients_must_come_back_in_the_precision_of_their_tensors(device):
    layer = torch.nn.Linear(4, 4).to(device)
    with torch.autocast("flagos"):
        out = layer(torch.ones(2, 4, device=device))
    out.float().sum().backward()
    assert out.dtype == torch.float16
    assert layer.weight.grad.dtype == torch.float32
    assert torch.equal(layer.weight.grad.cpu(), torch.full((4, 4), 2.0))


def test_binary_cross_entropy_must_be_refused_as_on_cuda(device):
    x = torch.full((4,), 0.5, device=device)
    with torch.autocast("flagos"):
        with pytest.raises(RuntimeError, match="unsafe"):
            F.binary_cross_entropy(x, x)
        assert F.binary_cross_entropy_with_logits(x, x).dtype == torch.float32


class Doubling(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped where the type checker runs
    @staticmethod
    @torch.amp.custom_fwd(device_type="flagos", cast_inputs=torch.float32)
    def forward(ctx, x):
        ctx.inside = torch.is_autocast_enabled("flagos")
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="flagos")
    def backward(ctx, gradient):
        assert not ctx.inside
        assert ctx.saved_tensors[0].dtype == torch.float32
        return gradient * 2


def test_custom_function_must_get_the_precision_it_asks_for(device):
    x = torch.ones(3, device=device, dtype=torch.float16, requires_grad=True)
    with torch.autocast("flagos"):
        out = Doubling.apply(x)
    assert out.dtype == torch.float32
    out.sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_checkpoint_must_compute_again_in_the_same_precision(device):
    seen = []

    def product(x):
        result = x @ x
        seen.append(result.dtype)
        return result.exp()

    x = torch.ones(4, 4, device=device, requires_grad=True)
    with torch.autocast("flagos", dtype=torch.bfloat16):
        out = torch.utils.checkpoint.checkpoint(product, x, use_reentrant=False)
    out.sum().backward()
    assert seen == [torch.bfloat16, torch.bfloat16]


def test_scaler_must_scale_step_and_grow(device):
    weight = torch.nn.Parameter(torch.ones(3, device=device))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = torch.amp.GradScaler("flagos", init_scale=8.0, growth_interval=1)
    loss = scaler.scale(weight.sum())
    assert loss.item() == 24
    loss.backward()
    scaler.unscale_(optimizer)
    assert weight.grad.tolist() == [1, 1, 1]
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0.5, 0.5, 0.5]
    assert scaler.get_scale() == 16


def test_scaler_must_skip_a_step_with_infinite_gradients_and_back_off(device):
    weight = torch.nn.Parameter(torch.ones(3, device=device))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = torch.amp.GradScaler("flagos", init_scale=8.0)
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [1, 1, 1]
    assert scaler.get_scale() == 4


def test_state_of_a_scaler_must_survive_a_round_trip():
    scaler = torch.amp.GradScaler("flagos", init_scale=32.0)
    other = torch.amp.GradScaler("flagos")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 32
