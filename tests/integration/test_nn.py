"""Layers and losses, forward and backward."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

pytestmark = pytest.mark.device


def run_layer(layer, *inputs):
    """Return the output, the gradients of inputs and parameters, and the buffers after one pass."""
    result = layer(*inputs)
    slope = torch.arange(float(result.numel()), device=result.device).reshape(result.shape) % 3 - 1
    (result * slope).sum().backward()
    gradients = [value.grad for value in (*inputs, *layer.parameters()) if getattr(value, "requires_grad", False)]
    return [result.detach(), *gradients, *layer.buffers()]


LAYERS = [
    pytest.param(lambda: nn.Linear(6, 4), (5, 6), id="linear"),
    pytest.param(lambda: nn.Linear(6, 4, bias=False), (2, 3, 6), id="linear-3d-no-bias"),
    pytest.param(lambda: nn.Bilinear(6, 6, 2), (5, 6), id="bilinear"),
    pytest.param(lambda: nn.LayerNorm(6), (4, 6), id="layer_norm"),
    pytest.param(lambda: nn.LayerNorm((3, 6), elementwise_affine=False), (4, 3, 6), id="layer_norm-2d"),
    pytest.param(lambda: nn.RMSNorm(6), (4, 6), id="rms_norm"),
    pytest.param(lambda: nn.GroupNorm(2, 4), (3, 4, 5), id="group_norm"),
    pytest.param(lambda: nn.BatchNorm1d(6), (8, 6), id="batch_norm1d"),
    pytest.param(lambda: nn.BatchNorm2d(3), (4, 3, 5, 5), id="batch_norm2d"),
    pytest.param(lambda: nn.BatchNorm2d(3, affine=False), (4, 3, 5, 5), id="batch_norm2d-plain"),
    pytest.param(lambda: nn.BatchNorm2d(3).eval(), (4, 3, 5, 5), id="batch_norm2d-eval"),
    pytest.param(lambda: nn.InstanceNorm2d(3, affine=True), (4, 3, 5, 5), id="instance_norm"),
    pytest.param(lambda: nn.PReLU(3), (4, 3, 5), id="prelu"),
    pytest.param(nn.GLU, (4, 6), id="glu"),
    pytest.param(lambda: nn.Softmax(-1), (4, 6), id="softmax"),
    pytest.param(nn.Flatten, (4, 2, 3), id="flatten"),
    pytest.param(lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)), (5, 6), id="mlp"),
]


@pytest.mark.parametrize(("make", "shape"), LAYERS)
def test_layer_must_give_outputs_gradients_and_buffers_of_the_cpu(to_device, device, product_tolerance, make, shape):
    torch.manual_seed(2)
    layer, source = make(), torch.randn(shape, requires_grad=True)
    inputs = (source, source) if isinstance(layer, nn.Bilinear) else (source,)
    there = copy.deepcopy(layer).to(device)
    moved = to_device(source)
    got = run_layer(there, *((moved, moved) if len(inputs) == 2 else (moved,)))
    torch.testing.assert_close([part.cpu() for part in got], run_layer(layer, *inputs), **product_tolerance)
    assert {part.device for part in got} == {device}


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda x: x.transpose(1, 2), id="transposed"),
        pytest.param(lambda x: x[:, ::2].transpose(1, 2), id="stepped"),
        pytest.param(lambda x: x[:1].expand(4, -1, -1).transpose(1, 2), id="expanded"),
    ],
)
def test_linear_of_a_view_must_have_the_gradients_of_the_cpu(agree, integers, view):
    def gradients(x, w, b):
        return torch.autograd.grad(functional.linear(view(x), w, b).sum(), (x, w, b))

    width = view(integers(2, 8, 5)).shape[-1]
    inputs = integers(2, 8, 5), integers(3, width), integers(3)
    agree(gradients, *(value.requires_grad_() for value in inputs), exact=True)


EMBEDDINGS = [
    pytest.param({}, id="plain"),
    pytest.param({"padding_idx": 2}, id="padding"),
    pytest.param({"max_norm": 1.0}, id="max_norm"),
    pytest.param({"scale_grad_by_freq": True}, id="scale_grad"),
]


@pytest.mark.parametrize("options", EMBEDDINGS)
def test_embedding_must_equal_cpu(device, options):
    torch.manual_seed(4)
    layer = nn.Embedding(7, 3, **options)
    there = copy.deepcopy(layer).to(device)
    indices = torch.tensor([[1, 2, 2], [6, 0, 1]])
    torch.testing.assert_close([part.cpu() for part in run_layer(there, indices.to(device))], run_layer(layer, indices))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag_must_equal_cpu(agree, mode):
    weight = torch.arange(21.0).reshape(7, 3)
    agree(
        lambda w, i, o: functional.embedding_bag(i, w, o, mode=mode),
        weight,
        torch.tensor([1, 2, 4, 5, 4, 3]),
        torch.tensor([0, 2, 4]),
    )


def test_one_hot_must_equal_cpu(agree):
    agree(lambda x: functional.one_hot(x, 5), torch.tensor([[0, 4], [2, 1]]), exact=True)


LOSSES = [
    pytest.param(functional.mse_loss, id="mse"),
    pytest.param(functional.l1_loss, id="l1"),
    pytest.param(functional.smooth_l1_loss, id="smooth_l1"),
    pytest.param(functional.huber_loss, id="huber"),
    pytest.param(lambda x, y: functional.cross_entropy(x, y.argmax(1)), id="cross_entropy"),
    pytest.param(lambda x, y: functional.cross_entropy(x, y.softmax(1)), id="cross_entropy-soft"),
    pytest.param(
        lambda x, y: functional.cross_entropy(x, y.argmax(1), weight=x.new_tensor([1.0, 2, 3, 4]), ignore_index=0),
        id="cross_entropy-weights",
    ),
    pytest.param(
        lambda x, y: functional.cross_entropy(x, y.argmax(1), label_smoothing=0.1, reduction="sum"),
        id="cross_entropy-smoothed",
    ),
    pytest.param(lambda x, y: functional.nll_loss(x.log_softmax(1), y.argmax(1)), id="nll"),
    pytest.param(lambda x, y: functional.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), id="kl"),
    pytest.param(lambda x, y: functional.binary_cross_entropy(x.sigmoid(), y.sigmoid()), id="bce"),
    pytest.param(lambda x, y: functional.binary_cross_entropy_with_logits(x, y.sigmoid()), id="bce-logits"),
    pytest.param(lambda x, y: functional.cosine_similarity(x, y).sum(), id="cosine"),
    pytest.param(lambda x, y: functional.hinge_embedding_loss(x, y.sign()), id="hinge"),
    pytest.param(lambda x, y: functional.triplet_margin_loss(x, y, x.flip(0)), id="triplet"),
]


@pytest.mark.parametrize("loss", LOSSES)
def test_loss_and_its_gradient_must_equal_cpu(agree, loss):
    def both(x, y):
        value = loss(x, y)
        return value.detach(), torch.autograd.grad(value, x)[0]

    agree(both, torch.randn(6, 4, requires_grad=True), torch.randn(6, 4))


ATTENTION = [
    pytest.param({}, (2, 3, 5, 8), (2, 3, 5, 8), id="plain"),
    pytest.param({"is_causal": True}, (2, 3, 5, 8), (2, 3, 5, 8), id="causal"),
    pytest.param({"scale": 0.3}, (2, 3, 5, 8), (2, 3, 5, 8), id="scale"),
    pytest.param({}, (2, 3, 4, 8), (2, 3, 7, 8), id="other-length"),
    pytest.param({"enable_gqa": True}, (2, 4, 5, 8), (2, 2, 5, 8), id="grouped-heads"),
]


@pytest.mark.parametrize(("options", "query", "key"), ATTENTION)
def test_attention_and_its_gradients_must_equal_cpu(agree, product_tolerance, options, query, key):
    def both(q, k, v):
        result = functional.scaled_dot_product_attention(q, k, v, **options)
        return result.detach(), *torch.autograd.grad(result.square().sum(), (q, k, v))

    inputs = torch.randn(query), torch.randn(key), torch.randn(key)
    agree(both, *(value.requires_grad_() for value in inputs), tolerance=product_tolerance)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_attention_with_a_mask_must_equal_cpu(agree, product_tolerance, kind):
    allowed = torch.ones(5, 5).tril().bool()
    mask = allowed if kind == "bool" else torch.zeros(5, 5).masked_fill(~allowed, -float("inf"))
    agree(
        lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, attn_mask=m),
        torch.randn(2, 3, 5, 8),
        torch.randn(2, 3, 5, 8),
        torch.randn(2, 3, 5, 8),
        mask,
        tolerance=product_tolerance,
    )


@pytest.mark.parametrize("need_weights", [False, True], ids=["no-weights", "weights"])
def test_multi_head_attention_must_equal_cpu(device, product_tolerance, need_weights):
    torch.manual_seed(6)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    there, source = copy.deepcopy(layer).to(device), torch.randn(3, 5, 8)
    expected = layer(source, source, source, need_weights=need_weights)
    got = there(*[source.to(device)] * 3, need_weights=need_weights)
    torch.testing.assert_close(got[0].cpu(), expected[0], **product_tolerance)
    if need_weights:
        torch.testing.assert_close(got[1].cpu(), expected[1], **product_tolerance)


@pytest.mark.usefixtures("full_precision")
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layer_and_its_gradients_must_equal_cpu(device, product_tolerance, layer):
    torch.manual_seed(7)
    here = layer(4, 5, num_layers=2, batch_first=True)
    there = copy.deepcopy(here).to(device)
    source = torch.randn(3, 6, 4)
    expected, got = here(source)[0], there(source.to(device))[0]
    torch.testing.assert_close(got.cpu(), expected, **product_tolerance)
    expected.sum().backward()
    got.sum().backward()
    for one, other in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-3, atol=10 * product_tolerance["atol"])


def test_gradients_must_be_clipped_as_on_the_cpu(device):
    here = [nn.Parameter(torch.full((3,), float(value))) for value in range(1, 4)]
    there = [nn.Parameter(value.detach().to(device)) for value in here]
    for group in (here, there):
        for value in group:
            value.grad = value.detach() * 2
    expected = nn.utils.clip_grad_norm_(here, 1.0)
    got = nn.utils.clip_grad_norm_(there, 1.0)
    torch.testing.assert_close(got.cpu(), expected)
    torch.testing.assert_close([value.grad.cpu() for value in there], [value.grad for value in here])


def test_initialisation_must_fill_parameters_on_the_device(device):
    weight = torch.empty(64, 64, device=device)
    nn.init.kaiming_uniform_(weight)
    assert 0 < float(weight.abs().max()) <= (6 / 64) ** 0.5
    nn.init.orthogonal_(weight)
    torch.testing.assert_close((weight @ weight.T).cpu(), torch.eye(64), rtol=0, atol=2e-2)


def test_module_made_on_the_device_must_live_there(device):
    layer = nn.Sequential(nn.Linear(3, 3, device=device), nn.BatchNorm1d(3, device=device))
    assert {value.device for value in layer.state_dict().values()} == {device}
