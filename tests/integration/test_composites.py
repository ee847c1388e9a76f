"""Composites that choose by the kind of device: the vendor's choice is taken, result and gradients are right."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

pytestmark = pytest.mark.device

# Fused kernels of half precision accumulate in single precision; what is left is the rounding of operands and results.
HALF = {"rtol": 2e-2, "atol": 2e-2}
SINGLE = {"rtol": 1e-3, "atol": 1e-4}
FUSED = {1: "flash", 2: "efficient", 3: "cudnn"}


def _with_gradients(function, *inputs):
    """The function's result, and the gradients of its sum."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    result = function(*leaves)
    return result.detach(), torch.autograd.grad(result.float().sum(), leaves)


def _attention(**options):
    return lambda q, k, v: _with_gradients(
        lambda *operands: functional.scaled_dot_product_attention(*operands, **options), q, k, v
    )


def _operands(*, heads=4, key_heads=4, size=16, dtype=torch.float32):
    queries = torch.randn(2, heads, 6, size)
    keys, values = torch.randn(2, key_heads, 7, size), torch.randn(2, key_heads, 7, size)
    return [tensor.to(dtype) for tensor in (queries, keys, values)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [16, 13], ids=["even", "odd"])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=["plain", "causal", "scaled"])
def test_attention_must_agree_with_the_cpu(agree, options, size, dtype):
    agree(_attention(**options), *_operands(size=size, dtype=dtype), tolerance=SINGLE if dtype.itemsize == 4 else HALF)


def test_attention_with_a_mask_must_agree_with_the_cpu(agree):
    def attend(q, k, v, mask):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    mask = torch.ones(6, 7, dtype=torch.bool).tril()
    agree(attend, *_operands(), mask, tolerance=SINGLE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_attention_with_grouped_heads_must_agree_with_the_cpu(agree, dtype):
    operands = _operands(heads=4, key_heads=2, dtype=dtype)
    agree(_attention(enable_gqa=True), *operands, tolerance=SINGLE if dtype.itemsize == 4 else HALF)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_attention_must_take_the_vendors_choice(to_device, dtype):
    q, k, v = to_device(_operands(dtype=dtype))
    choice = torch._fused_sdp_choice(q, k, v)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        functional.scaled_dot_product_attention(q, k, v)
    names = " ".join(event.name for event in profile.events())
    expected = f"_scaled_dot_product_{FUSED[choice]}_attention" if choice in FUSED else "_attention_math"
    assert expected in names


def test_attention_must_obey_a_forced_choice(to_device):
    q, k, v = to_device(_operands(dtype=torch.float16))
    with sdpa_kernel(SDPBackend.MATH):
        assert torch._fused_sdp_choice(q, k, v) == SDPBackend.MATH.value


def test_attention_dropout_must_drop_and_keep_the_mean(device):
    q, k = torch.zeros(1, 1, 512, 8, device=device), torch.zeros(1, 1, 512, 8, device=device)
    result = functional.scaled_dot_product_attention(q, k, torch.ones_like(k), dropout_p=0.5)
    assert not torch.equal(result, torch.ones_like(result))
    assert abs(float(result.mean()) - 1) < 0.1


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
def test_batch_norm_must_agree_with_the_cpu(agree, training, layout):
    def normalise(images, weight, bias, mean, variance):
        def run(*leaves):
            return functional.batch_norm(leaves[0], mean, variance, leaves[1], leaves[2], training=training)

        return _with_gradients(run, images, weight, bias)

    images = torch.randn(4, 3, 5, 5).to(memory_format=layout)
    agree(normalise, images, torch.rand(3), torch.randn(3), torch.zeros(3), torch.ones(3), tolerance=SINGLE)


@pytest.mark.usefixtures("full_precision")
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "options",
    [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False}, {"batch_first": True}],
    ids=["plain", "deep", "no_bias", "batch_first"],
)
def test_recurrent_network_must_agree_with_the_cpu(device, kind, options):
    network = kind(5, 4, **options)
    mine = kind(5, 4, **options).to(device)
    mine.load_state_dict(network.state_dict())
    steps = torch.randn(3, 3, 5)
    results = []
    for module, operand in ((mine, steps.to(device)), (network, steps)):
        output, _ = module(operand)
        results.append((output.detach(), torch.autograd.grad(output.sum(), list(module.parameters()))))
    torch.testing.assert_close(results[0][0].cpu(), results[1][0], **SINGLE)
    for got, expected in zip(results[0][1], results[1][1], strict=True):
        torch.testing.assert_close(got.cpu(), expected, **SINGLE)


@pytest.mark.usefixtures("full_precision")
def test_lstm_with_projections_must_agree_with_the_cpu(device):
    network = torch.nn.LSTM(5, 4, proj_size=2)
    mine = torch.nn.LSTM(5, 4, proj_size=2).to(device)
    mine.load_state_dict(network.state_dict())
    steps = torch.randn(3, 2, 5)
    torch.testing.assert_close(mine(steps.to(device))[0].cpu(), network(steps)[0], **SINGLE)


@pytest.mark.usefixtures("full_precision")
def test_packed_sequence_must_agree_with_the_cpu(device):
    network = torch.nn.GRU(5, 4)
    mine = torch.nn.GRU(5, 4).to(device)
    mine.load_state_dict(network.state_dict())
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(3, 2, 5), torch.tensor([3, 1]))
    torch.testing.assert_close(mine(packed.to(device))[0].data.cpu(), network(packed)[0].data, **SINGLE)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_ctc_loss_must_agree_with_the_cpu(agree, reduction, dtype):
    # Targets on the CPU as one list, int32 and blank 0: what the vendor's library asks for.
    targets, lengths = torch.tensor([1, 2, 2, 1, 2], dtype=dtype), torch.tensor([3, 2], dtype=dtype)
    steps = torch.tensor([6, 6], dtype=dtype)

    def loss(scores):
        return _with_gradients(
            lambda leaf: functional.ctc_loss(leaf.log_softmax(-1), targets, steps, lengths, reduction=reduction), scores
        )

    agree(loss, torch.randn(6, 2, 4), tolerance=SINGLE)


@pytest.mark.parametrize("align", [True, False], ids=["aligned", "not_aligned"])
def test_grid_sample_must_agree_with_the_cpu(agree, align):
    def sample(images, grid):
        return _with_gradients(lambda *both: functional.grid_sample(*both, align_corners=align), images, grid)

    agree(sample, torch.randn(2, 3, 5, 5), torch.rand(2, 4, 4, 2) * 2 - 1, tolerance=SINGLE)
