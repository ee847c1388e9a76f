"""Function transforms, forward mode, checkpoints and compilation: PyTorch's layers above the device."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional as F  # noqa: N812 - the name that PyTorch's documentation gives it

pytestmark = pytest.mark.device

MAPPED = [
    pytest.param(lambda x: x.sin().sum(), id="elementwise"),
    pytest.param(lambda x: x @ x.t(), id="matmul"),
    pytest.param(lambda x: F.layer_norm(x, (4,)), id="layer_norm"),
    pytest.param(lambda x: x.softmax(0).max(), id="softmax-max"),
    pytest.param(lambda x: x[1:, ::2].clone().add_(1), id="view-in-place"),
    pytest.param(lambda x: torch.cat([x, x.flip(0)]).sort(0).values, id="cat-sort"),
    pytest.param(lambda x: x.index_select(0, torch.tensor([2, 0], device=x.device)), id="index_select"),
]


@pytest.mark.parametrize("function", MAPPED)
def test_vmap_must_equal_cpu(agree, function):
    agree(torch.vmap(function), torch.randn(3, 4, 4), tolerance={"rtol": 2e-3, "atol": 2e-3})


@pytest.mark.parametrize("dims", [(0, 1), (None, 0), (1, None)], ids=str)
def test_vmap_over_chosen_dimensions_must_equal_cpu(agree, dims):
    agree(torch.vmap(lambda x, y: x * y + 1, in_dims=dims, out_dims=1), torch.randn(4, 4), torch.randn(4, 4))


DRAWS = [
    pytest.param(lambda x: x + torch.rand(4, device=x.device), id="rand"),
    pytest.param(torch.randn_like, id="randn_like"),
    pytest.param(lambda x: F.dropout(x + 1, 0.5), id="dropout"),
    pytest.param(lambda x: x + torch.bernoulli(torch.full((4,), 0.5, device=x.device)), id="bernoulli"),
]


@pytest.mark.parametrize("draw", DRAWS)
def test_randomness_in_vmap_must_be_the_same_different_or_refused_as_asked(device, draw):
    x = torch.zeros(6, 4, device=device)
    same = torch.vmap(draw, randomness="same")(x)
    assert all(torch.equal(row, same[0]) for row in same)
    different = torch.vmap(draw, randomness="different")(x)
    assert any(not torch.equal(row, different[0]) for row in different)
    with pytest.raises(RuntimeError, match="random"):
        torch.vmap(draw)(x)


def test_derivatives_of_derivatives_must_equal_cpu(agree):
    def cube(x):
        return (x**3).sum()

    x = torch.randn(3)
    agree(torch.func.grad(lambda x: torch.func.grad(cube)(x).sum()), x)
    agree(torch.func.hessian(cube), x)
    agree(torch.func.jacrev(torch.sin), x)
    agree(torch.func.jacfwd(torch.sin), x)
    agree(torch.vmap(torch.func.grad(lambda x: x**2)), x)
    agree(lambda x: torch.func.jvp(cube, (x,), (x,)), x)
    agree(lambda x: torch.func.vjp(torch.sin, x)[1](x), x)


def test_gradient_per_sample_must_equal_cpu(device):
    torch.manual_seed(3)
    here = nn.Linear(3, 2)
    x = torch.randint(-3, 4, (5, 3)).float()

    def per_sample(layer, samples):
        def loss(parameters, sample):
            return torch.func.functional_call(layer, parameters, sample[None]).sum()

        return torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(dict(layer.named_parameters()), samples)

    expected = per_sample(here, x)
    got = per_sample(here.to(device), x.to(device))
    assert got["weight"].device == device
    assert torch.equal(got["weight"].cpu(), expected["weight"])
    assert torch.equal(got["bias"].cpu(), expected["bias"])


def test_ensemble_must_run_as_one(device):
    layers = [nn.Linear(3, 2).to(device) for _ in range(4)]
    parameters, buffers = torch.func.stack_module_state(layers)
    x = torch.ones(5, 3, device=device)
    got = torch.vmap(lambda p, b: torch.func.functional_call(layers[0], (p, b), (x,)))(parameters, buffers)
    for index, layer in enumerate(layers):
        torch.testing.assert_close(got[index], layer(x), rtol=2e-3, atol=2e-3)


def test_forward_mode_must_carry_the_tangent(device):
    x, tangent = torch.arange(1.0, 4.0, device=device), torch.full((3,), 2.0, device=device)
    with forward_ad.dual_level():
        out = forward_ad.make_dual(x, tangent) ** 2
        view = out[1:]
        assert forward_ad.unpack_dual(out).tangent.tolist() == [4, 8, 12]
        assert forward_ad.unpack_dual(view).tangent.tolist() == [8, 12]
        assert forward_ad.unpack_dual(out).tangent.device == device


def test_functionalized_function_must_give_the_same(agree):
    agree(torch.func.functionalize(lambda x: x.clone().add_(1).view(-1)), torch.ones(2, 2))


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not-reentrant"])
def test_checkpoint_must_leave_the_sequence_of_random_numbers_as_it_was(device, reentrant):
    x = torch.ones(64, device=device, requires_grad=True)

    def after(use):
        torch.manual_seed(4)
        out = use()
        out.sum().backward()
        return torch.rand(4, device=device)

    plain = after(lambda: F.dropout(x, 0.5))
    gradient, x.grad = x.grad, None
    again = after(lambda: torch.utils.checkpoint.checkpoint(F.dropout, x, 0.5, use_reentrant=reentrant))
    assert torch.equal(plain, again)
    assert torch.equal(gradient, x.grad)


@pytest.mark.parametrize("pinned", [False, True])
def test_saved_tensors_must_wait_on_the_host_when_asked(device, pinned):
    x = torch.arange(3.0, device=device, requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=pinned):
        out = (x * x).sum()
    out.backward()
    assert x.grad.tolist() == [0, 2, 4]


def test_hook_after_accumulation_must_free_gradients_early(device):
    weight = torch.ones(3, device=device, requires_grad=True)
    seen = []

    def step(parameter):
        seen.append(parameter.grad.tolist())
        parameter.grad = None

    weight.register_post_accumulate_grad_hook(step)
    (weight * 2).sum().backward()
    assert seen == [[2, 2, 2]]
    assert weight.grad is None


def test_inference_tensors_must_be_refused_where_autograd_needs_them(device):
    weight = torch.ones(3, device=device, requires_grad=True)
    with torch.inference_mode():
        made = torch.ones(3, device=device)
        results = {
            "moved": torch.ones(3).to(device),
            "view": made[1:],
            "sum": made + 1,
            "empty": torch.empty(1).to(device),
        }
        assert all(result.is_inference() for result in results.values())
        assert not weight.view(3).is_inference()
    with pytest.raises(RuntimeError, match=r"(?i)inference tensors cannot be saved for backward"):
        weight * made
    with pytest.raises(RuntimeError, match=r"(?i)inplace update to inference tensor"):
        made.add_(1)
    with pytest.raises(RuntimeError, match="version counter"):
        made._version  # noqa: B018 - asking is the test
    assert not made.clone().is_inference()


PARAMETRIZED = [
    pytest.param(nn.utils.parametrizations.weight_norm, id="weight_norm"),
    pytest.param(nn.utils.parametrizations.orthogonal, id="orthogonal"),
    pytest.param(nn.utils.parametrizations.spectral_norm, id="spectral_norm"),
]


@pytest.mark.parametrize("parametrize", PARAMETRIZED)
def test_parametrization_must_move_and_train(device, parametrize):
    layer = parametrize(nn.Linear(3, 3)).to(device)
    layer(torch.ones(1, 3, device=device)).sum().backward()
    assert all(p.grad is not None and p.device == device for p in layer.parameters())
    vector = nn.utils.parameters_to_vector(layer.parameters())
    nn.utils.vector_to_parameters(vector * 0.5, layer.parameters())
    assert torch.equal(nn.utils.parameters_to_vector(layer.parameters()), vector * 0.5)


@pytest.mark.parametrize("foreach", [True, False, None])
def test_clipping_must_handle_parameters_of_host_and_device_together(device, foreach):
    """Some backends fall to the CPU here, or refuse the mixture."""
    places = (torch.device("cpu"), device)
    parameters = [torch.ones(4, device=place, requires_grad=True) for place in places]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 2.0)
    norm = nn.utils.clip_grad_norm_(parameters, 1.0, foreach=foreach)
    assert norm.item() == pytest.approx(32**0.5)
    for parameter, place in zip(parameters, places, strict=True):
        assert parameter.grad.device == place
        assert torch.allclose(parameter.grad.cpu(), torch.full((4,), 2 / 32**0.5))


def model(x, y):
    return (F.gelu(x @ y) + F.dropout(x, 0.0)).sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_function_must_equal_the_plain_one(device, backend):
    torch.compiler.reset()
    x, y = (torch.arange(9.0, device=device).reshape(3, 3).requires_grad_() for _ in range(2))
    plain = model(x, y)
    plain.backward()
    expected, x.grad, y.grad = x.grad, None, None
    compiled = torch.compile(model, backend=backend, fullgraph=True)(x, y)
    compiled.backward()
    assert compiled.device == device
    assert torch.equal(compiled, plain)
    assert torch.equal(x.grad, expected)


def test_compiled_random_numbers_must_come_from_the_device(device):
    torch.compiler.reset()
    draw = torch.compile(lambda x: F.dropout(x, 0.5) + torch.rand_like(x), backend="aot_eager")
    x = torch.ones(64, device=device)
    torch.manual_seed(1)
    first = draw(x)
    torch.manual_seed(1)
    assert torch.equal(draw(x), first)
    assert not torch.equal(draw(x), first)


def test_inductor_must_be_refused_by_the_devices_name(device):
    """It generates code for devices that it knows (docs/limits.md)."""
    torch.compiler.reset()
    with pytest.raises(Exception, match="flagos"):
        torch.compile(lambda x: x + 1, backend="inductor")(torch.ones(2, device=device))
