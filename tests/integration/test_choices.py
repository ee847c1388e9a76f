"""The vendor's choice of kernels, asked under PyTorch's layers: torch.func's wrappers and the compiler's fake tensors.

Composites that ask run above these layers, on tensors that have no memory of their own on the device.
"""

from __future__ import annotations

import textwrap

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name that PyTorch's documentation gives it

pytestmark = pytest.mark.device

TOLERANCE = {"rtol": 2e-3, "atol": 2e-3}


def attend(x):
    return F.scaled_dot_product_attention(x, x, x)


def attend_masked(x):
    return F.scaled_dot_product_attention(x, x, x, torch.ones(4, 4, dtype=torch.bool, device=x.device).tril())


def normalize(x):
    weight, bias = torch.full((3,), 2.0, device=x.device), torch.ones(3, device=x.device)
    return F.batch_norm(x, None, None, weight, bias, training=True)


def sample(x):
    grid = torch.linspace(-0.9, 0.9, 16, device=x.device).reshape(1, 2, 4, 2).expand(x.shape[0], 2, 4, 2)
    return F.grid_sample(x, grid, align_corners=True)


COMPOSITES = [
    pytest.param(attend, id="attention"),
    pytest.param(attend_masked, id="masked-attention"),
    pytest.param(normalize, id="batch_norm"),
    pytest.param(sample, id="grid_sample"),
]


def loss(function):
    return lambda x: function(x).square().sum()


def mapped(function):
    return lambda x: torch.vmap(function)(torch.stack([x, x + 1]))


TRANSFORMS = [
    pytest.param(mapped, id="vmap"),
    pytest.param(lambda function: torch.func.grad(loss(function)), id="grad"),
    pytest.param(lambda function: mapped(torch.func.grad(loss(function))), id="vmap-of-grad"),
    pytest.param(lambda function: torch.func.grad(loss(mapped(function))), id="grad-of-vmap"),
    pytest.param(torch.func.functionalize, id="functionalize"),
]


@pytest.mark.usefixtures("full_precision")
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("composite", COMPOSITES)
def test_transformed_composite_must_equal_cpu(agree, composite, transform):
    agree(transform(composite), torch.randn(2, 3, 4, 4), tolerance=TOLERANCE)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("composite", COMPOSITES)
def test_compiled_composite_must_equal_the_plain_one(device, composite, dynamic):
    torch.compiler.reset()
    x = torch.randn(2, 3, 4, 4).to(device).requires_grad_()
    plain = composite(x)
    (expected,) = torch.autograd.grad(plain.sum(), x)
    compiled = torch.compile(composite, backend="aot_eager", dynamic=dynamic)(x)
    torch.testing.assert_close(compiled, plain, **TOLERANCE)
    torch.testing.assert_close(torch.autograd.grad(compiled.sum(), x)[0], expected, **TOLERANCE)


@pytest.mark.parametrize("composite", COMPOSITES)
def test_traced_composite_must_hold_no_tensor_of_the_vendors(device, composite):
    graph = torch.fx.experimental.proxy_tensor.make_fx(composite)(torch.randn(2, 3, 4, 4, device=device))
    assert "cuda" not in graph.print_readable(print_output=False)
    assert all(constant.device == device for constant in graph.state_dict().values())


def test_exported_attention_must_equal_the_plain_one(device):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(device)
    x = torch.randn(2, 5, 8).to(device)
    torch.testing.assert_close(torch.export.export(layer, (x,)).module()(x), layer(x), **TOLERANCE)


def test_attention_on_strided_nested_tensors_must_equal_cpu(agree):
    def attend_nested(*rows):
        nested = torch.nested.as_nested_tensor(list(rows))
        return attend(nested).to_padded_tensor(0.0)

    agree(attend_nested, torch.randn(2, 3, 8), torch.randn(2, 4, 8), tolerance=TOLERANCE)


@pytest.mark.plugin_alone
def test_vendors_flash_attention_must_be_mapped_by_what_vmap_can_map(python):
    """The vendor of the test says flash to everything, and has no flash attention to call."""
    program = """
        import torch_fl, torch
        seen = []
        def choose(query, *others, **options):
            seen.append((query.device.type, tuple(query.shape), query.requires_grad))
            return 1
        library = torch.library.Library("aten", "IMPL")
        library.impl("_fused_sdp_choice", choose, "CUDA")
        attend = lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x)
        x = torch.ones(2, 1, 1, 3, 8, device="flagos")
        print(torch.vmap(attend)(x).sum().item(), torch.vmap(torch.func.grad(lambda y: attend(y).sum()))(x).shape)
        print(seen[0], len(seen))
    """
    done = python(textwrap.dedent(program))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "48.0 torch.Size([2, 1, 1, 3, 8])\n('cuda', (1, 1, 3, 8), False) 2\n"
