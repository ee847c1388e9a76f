"""Autograd: gradients, hooks, modes, versions, checkpoints, custom functions."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.device

FUNCTIONS = [
    pytest.param(lambda x: x * x, id="mul"),
    pytest.param(lambda x: x / (x.abs() + 1), id="div"),
    pytest.param(lambda x: x.exp().log1p(), id="exp-log1p"),
    pytest.param(lambda x: x.tanh().pow(3), id="tanh-pow"),
    pytest.param(lambda x: x.softmax(-1), id="softmax"),
    pytest.param(lambda x: x.mean(0) * x, id="mean-broadcast"),
    pytest.param(lambda x: x[1:, ::2].contiguous(), id="slice"),
    pytest.param(lambda x: torch.cat([x, x.flip(0)], 1), id="cat"),
    pytest.param(lambda x: x.cumsum(1), id="cumsum"),
    pytest.param(lambda x: x.max(1)[0], id="max"),
    pytest.param(lambda x: x.sort(0)[0], id="sort"),
    pytest.param(lambda x: torch.where(x > 0, x, x * 0.1), id="where"),
    pytest.param(lambda x: x.var(0), id="var"),
    pytest.param(lambda x: torch.linalg.vector_norm(x, dim=1), id="norm"),
    pytest.param(lambda x: x.expand(3, 4, 5).sum(0), id="expand"),
    pytest.param(lambda x: x.unfold(1, 2, 1), id="unfold"),
    pytest.param(lambda x: x.as_strided((2, 2), (1, 2)), id="as_strided"),
    pytest.param(lambda x: x.clone().mul_(2).add_(x), id="in-place"),
    pytest.param(lambda x: x.to(torch.float64).sin(), id="to-float64"),
    pytest.param(lambda x: x.clamp(-0.5, 0.5), id="clamp"),
    pytest.param(lambda x: x.repeat(2, 2), id="repeat"),
    pytest.param(lambda x: x.masked_fill(x > 0, 0) * 3, id="masked_fill"),
    pytest.param(lambda x: x.prod(1), id="prod"),
    pytest.param(lambda x: torch.stack(x.unbind(0), 1), id="unbind-stack"),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradient_must_equal_cpu(agree, function):
    def gradient(x):
        result = function(x)
        slope = torch.arange(float(result.numel()), device=x.device).reshape(result.shape) / 7
        return result.detach(), torch.autograd.grad((result * slope).sum(), x)[0]

    agree(gradient, torch.randn(4, 5, requires_grad=True))


def test_gradient_must_live_where_its_tensor_does(device):
    x = torch.ones(3, device=device, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.device == device
    assert x.grad.tolist() == [2, 2, 2]


def test_gradients_must_accumulate_and_be_cleared(device):
    x = torch.ones(3, device=device, requires_grad=True)
    for count in (1, 2, 3):
        x.sum().backward()
        assert x.grad.tolist() == [count] * 3
    x.grad = None
    x.sum().backward()
    assert x.grad.tolist() == [1] * 3


def test_second_derivative_must_equal_cpu(agree):
    def second(x):
        (slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return torch.autograd.grad(slope.sum(), x)[0]

    agree(second, torch.arange(4.0, requires_grad=True))


def test_numerical_gradient_must_agree(device):
    x = torch.randn(3, 3, dtype=torch.float64).to(device).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: (x @ x.t()).tanh(), (x,), nondet_tol=1e-10)


def test_hooks_must_see_and_may_change_the_gradient(device):
    seen = []
    x = torch.ones(2, device=device, requires_grad=True)
    y = x * 3

    def tenfold(slope):
        seen.append(slope.device)
        return slope * 10

    y.register_hook(tenfold)
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.tolist()))
    y.sum().backward()
    assert seen == [device, [30.0, 30.0]]


def test_module_hooks_must_run(device):
    calls = []
    layer = nn.Linear(2, 2).to(device)
    layer.register_forward_hook(lambda _module, _inputs, output: calls.append(output.device))
    layer.register_full_backward_hook(lambda _module, into, _out: calls.append(into[0].device))
    layer(torch.ones(1, 2, device=device, requires_grad=True)).sum().backward()
    assert calls == [device, device]


def test_no_grad_must_record_nothing(device):
    x = torch.ones(2, device=device, requires_grad=True)
    with torch.no_grad():
        y = x * 2
    assert not y.requires_grad
    assert y.grad_fn is None
    with torch.no_grad(), torch.enable_grad():
        assert (x * 2).requires_grad


def test_inference_mode_must_make_inference_tensors(device):
    x = torch.ones(2, device=device, requires_grad=True)
    with torch.inference_mode():
        y = x * 2
        y.add_(1)
        view = y[:1]
        fresh = torch.zeros(2, device=device)
    assert y.is_inference()
    assert view.is_inference()
    assert fresh.is_inference()
    assert y.tolist() == [3, 3]
    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        (y * x).sum().backward()


def test_detach_must_cut_the_graph_and_share_memory(device):
    x = torch.ones(2, device=device, requires_grad=True)
    cut = x.detach()
    assert not cut.requires_grad
    assert cut.data_ptr() == x.data_ptr()


def test_in_place_on_a_leaf_that_needs_grad_must_be_refused(device):
    x = torch.ones(2, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        x.add_(1)
    assert x.tolist() == [1, 1]


VERSIONED = [
    pytest.param(lambda x: x.add_(1), id="add_"),
    pytest.param(lambda x: x.copy_(torch.zeros(3)), id="copy_"),
    pytest.param(lambda x: x.zero_(), id="zero_"),
    pytest.param(lambda x: x[1:].mul_(2), id="through-a-view"),
    pytest.param(lambda x: x.__setitem__(0, 5), id="setitem"),
    pytest.param(lambda x: torch.add(x, 1, out=x), id="out"),
    pytest.param(lambda x: x.detach().add_(1), id="through-detach"),
    pytest.param(lambda x: x.normal_(), id="normal_"),
]


@pytest.mark.parametrize("change", VERSIONED)
def test_every_change_must_count_the_version_up(device, change):
    x = torch.arange(3.0, device=device)
    before = x._version
    change(x)
    assert x._version == before + 1


@pytest.mark.parametrize("change", VERSIONED)
def test_change_of_a_value_that_backward_needs_must_be_noticed(device, change):
    x = torch.arange(3.0, device=device, requires_grad=True)
    y = x * 2
    result = (y * y).sum()
    with torch.no_grad():
        change(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_in_place_through_a_view_must_reach_the_gradient_of_the_base(agree):
    def gradient(x):
        y = x.clone()
        y[:, 1:].mul_(3)
        y.t()[0] += x[:, 2]
        return torch.autograd.grad(y.square().sum(), x)[0]

    agree(gradient, torch.arange(12.0).reshape(3, 4).requires_grad_())


def test_retained_graph_must_serve_twice_and_a_freed_one_must_say_so(device):
    x = torch.ones(2, device=device, requires_grad=True)
    y = x.exp().sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


@pytest.mark.parametrize("reentrant", [False, True], ids=["plain", "reentrant"])
def test_checkpoint_with_dropout_must_repeat_its_random_numbers(device, reentrant):
    layer = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Tanh()).to(device)
    x = torch.randn(8, 16).to(device).requires_grad_()
    torch.manual_seed(3)
    layer(x).sum().backward()
    expected, x.grad = x.grad.clone(), None
    torch.manual_seed(3)
    checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
    torch.testing.assert_close(x.grad, expected)


def test_custom_function_must_get_and_give_device_tensors(device):
    places = []

    def forward(context, x):
        context.save_for_backward(x)
        places.append(x.device)
        return x * x

    def backward(context, slope):
        (x,) = context.saved_tensors
        places.extend([x.device, slope.device])
        return slope * 2 * x

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    square: Any = type("Square", (torch.autograd.Function,), methods)
    x = torch.arange(3.0, device=device, requires_grad=True)
    square.apply(x).sum().backward()
    assert x.grad.tolist() == [0, 2, 4]
    assert places == [device] * 3


def test_saved_tensors_must_pass_through_pack_hooks(device):
    x = torch.arange(3.0, device=device, requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        y = x * x
    y.sum().backward()
    assert x.grad.tolist() == [0, 2, 4]
    assert x.grad.device == device


def test_anomaly_mode_must_name_the_operator_that_made_nan(device):
    x = torch.zeros(2, device=device, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="nan"):
        (x.sqrt() * 0).sum().backward()


def test_graph_across_host_and_device_must_give_both_their_gradients(device):
    host = torch.ones(3, requires_grad=True)
    there = torch.full((3,), 2.0, device=device, requires_grad=True)
    ((host.to(device) * there).cpu() * host).sum().backward()
    assert host.grad.tolist() == [4, 4, 4]
    assert there.grad.tolist() == [1, 1, 1]


def test_graph_across_two_devices_must_give_both_their_gradients(device, other_device):
    one = torch.ones(3, device=device, requires_grad=True)
    two = torch.full((3,), 2.0, device=other_device, requires_grad=True)
    (one.to(other_device) * two).sum().backward()
    assert one.grad.device == device
    assert two.grad.device == other_device
    assert one.grad.tolist() == [2, 2, 2]
    assert two.grad.tolist() == [1, 1, 1]


@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp", "jacrev"])
def test_function_transform_must_equal_cpu(agree, transform):
    def function(x):
        return (x.sin() * x).sum()

    calls = {
        "grad": torch.func.grad(function),
        "vmap": torch.func.vmap(function),
        "jvp": lambda x: torch.func.jvp(function, (x,), (torch.ones_like(x),)),
        "jacrev": torch.func.jacrev(lambda x: x.exp() * 2),
    }
    agree(calls[transform], torch.linspace(-1, 1, 12).reshape(3, 4))


def test_small_network_must_have_the_gradients_of_the_cpu(device, product_tolerance):
    torch.manual_seed(9)
    here = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
    there = copy.deepcopy(here).to(device)
    image, label = torch.randn(6, 1, 6, 6), torch.arange(6) % 5
    nn.functional.cross_entropy(here(image), label).backward()
    nn.functional.cross_entropy(there(image.to(device)), label.to(device)).backward()
    for one, other in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-2, atol=10 * product_tolerance["atol"])
