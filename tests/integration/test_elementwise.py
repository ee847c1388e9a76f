"""Elementwise operators: result type first, then values, over dtypes, layouts and kinds of operand."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

pytestmark = pytest.mark.device

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
]
UNARY = {
    "abs": torch.abs,
    "neg": torch.neg,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "floor": torch.floor,
    "sign": torch.sign,
    "square": torch.square,
    "reciprocal": torch.reciprocal,
    "isnan": torch.isnan,
    "logical_not": torch.logical_not,
    "relu": torch.relu,
    "silu": functional.silu,
    "elu": functional.elu,
}


def sample(dtype: torch.dtype) -> torch.Tensor:
    """Twelve values of a dtype, within the domain where all precisions agree."""
    if dtype == torch.bool:
        return torch.tensor([True, False] * 6).reshape(3, 4)
    if dtype == torch.uint8:
        return torch.arange(12, dtype=dtype).reshape(3, 4) % 6
    values = torch.arange(-6, 6).reshape(3, 4)
    if not dtype.is_floating_point and not dtype.is_complex:
        return values.to(dtype)
    if dtype.is_complex:
        return torch.complex(values / 4 + 0.1, values.flip(0) / 5 + 0.1).to(dtype)
    return (values / 4 + 0.125).to(dtype)


# The CPU has no kernel for these; whether a vendor has one is the vendor's affair.
WITHOUT_KERNEL = {
    ("abs", torch.bool),
    ("neg", torch.bool),
    ("erf", torch.complex64),
    ("floor", torch.bool),
    ("floor", torch.complex64),
    ("sign", torch.complex64),
    ("relu", torch.bool),
    ("relu", torch.complex64),
    ("elu", torch.complex64),
    *((name, dtype) for name in ("silu", "elu") for dtype in (torch.bool, torch.uint8, torch.int64)),
    *((name, torch.bool) for name in ("sub", "floor_divide", "remainder", "pow")),
    *((name, torch.complex64) for name in ("floor_divide", "remainder", "maximum", "atan2", "lt")),
}
UNARY_CASES = [(name, dtype) for name in UNARY for dtype in DTYPES if (name, dtype) not in WITHOUT_KERNEL]


@pytest.mark.parametrize(("name", "dtype"), UNARY_CASES, ids=str)
def test_unary_operator_must_have_dtype_and_values_of_the_cpu(agree, name, dtype):
    agree(UNARY[name], sample(dtype))


BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "pow": torch.pow,
    "maximum": torch.maximum,
    "atan2": torch.atan2,
    "eq": torch.eq,
    "lt": torch.lt,
    "logical_and": torch.logical_and,
}
PAIRS = [
    (torch.int64, torch.float32),
    (torch.uint8, torch.int64),
    (torch.bool, torch.bool),
    (torch.bool, torch.int32),
    (torch.float16, torch.float32),
    (torch.bfloat16, torch.float16),
    (torch.float32, torch.complex64),
]


def positive(dtype: torch.dtype) -> torch.Tensor:
    """1 to 4: no division by zero, which kernels may answer differently."""
    return (torch.arange(12).reshape(3, 4) % 4 + 1).to(dtype)


BINARY_CASES = [
    pytest.param(name, left, right, id=f"{name}-{left}-{right}")
    for name in BINARY
    for left, right in PAIRS
    if (name, torch.promote_types(left, right)) not in WITHOUT_KERNEL and (name, left) != ("sub", torch.bool)
]


@pytest.mark.parametrize(("name", "left", "right"), BINARY_CASES)
def test_binary_operator_must_promote_as_on_the_cpu(agree, name, left, right):
    agree(BINARY[name], positive(left), positive(right).flip(0))


FLAGS, COMPLEX = torch.tensor([True, False]), torch.tensor([1j, 2 + 0j])
REFUSED = [
    pytest.param(torch.neg, (FLAGS,), id="neg-bool"),
    pytest.param(torch.sub, (FLAGS, FLAGS), id="sub-bool"),
    pytest.param(torch.sub, (FLAGS, torch.ones(2)), id="sub-bool-float"),
    pytest.param(torch.relu, (FLAGS,), id="relu-bool"),
    pytest.param(torch.sign, (COMPLEX,), id="sign-complex"),
    pytest.param(torch.maximum, (COMPLEX, COMPLEX), id="maximum-complex"),
    pytest.param(torch.clamp, (COMPLEX, 0, 1), id="clamp-complex"),
    pytest.param(torch.bitwise_and, (torch.ones(2), torch.ones(2)), id="bitwise_and-float"),
    pytest.param(torch.add, (torch.ones(3), torch.ones(4)), id="add-shapes"),
]


@pytest.mark.parametrize(("call", "operands"), REFUSED)
def test_what_pytorch_refuses_on_every_device_must_be_refused(both_raise, call, operands):
    both_raise(call, *operands)


SCALARS = [
    pytest.param(2, id="int"),
    pytest.param(0.5, id="float"),
    pytest.param(True, id="bool"),
    pytest.param(1 + 1j, id="complex"),
    pytest.param(torch.tensor(1.5), id="0-dim-float32"),
    pytest.param(torch.tensor(2), id="0-dim-int64"),
    pytest.param(torch.tensor(1.5, dtype=torch.float64), id="0-dim-float64"),
]


@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float16, torch.float32], ids=str)
def test_scalar_operand_must_promote_as_on_the_cpu(agree, dtype, scalar):
    """A 0-dim operand stands on flagos here, as `agree` moves it."""
    agree(lambda x, y: (x + y, x * y), positive(dtype), scalar)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32], ids=str)
def test_0_dim_operand_on_the_cpu_must_be_accepted(assert_same, device, dtype):
    values, scalar = positive(dtype), torch.tensor(1.5)
    assert_same(values.to(device) * scalar, values * scalar, exact=True)
    assert_same(scalar - values.to(device), scalar - values, exact=True)


LAYOUTS = [
    pytest.param(lambda x: x, id="contiguous"),
    pytest.param(lambda x: x.transpose(1, 3), id="transposed"),
    pytest.param(lambda x: x[::2], id="stepped"),
    pytest.param(lambda x: x[:, 1:, 1:], id="offset"),
    pytest.param(lambda x: x[:1].expand(4, 3, 4, 6), id="expanded"),
    pytest.param(lambda x: x.contiguous(memory_format=torch.channels_last), id="channels_last"),
]
LAYOUT_CALLS = [
    pytest.param(lambda x: x + x, id="add"),
    pytest.param(torch.exp, id="exp"),
    pytest.param(lambda x: torch.where(x > 0, x, -x), id="where"),
    pytest.param(lambda x: x.clamp(min=-0.5), id="clamp"),
    pytest.param(lambda x: x.to(torch.float64), id="to-float64"),
    pytest.param(torch.zeros_like, id="zeros_like"),
    pytest.param(lambda x: x.clone(), id="clone"),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("call", LAYOUT_CALLS)
def test_result_of_any_layout_must_have_values_and_strides_of_the_cpu(assert_same, device, call, layout):
    base = torch.linspace(-1, 1, 4 * 3 * 4 * 6).reshape(4, 3, 4, 6)
    got, expected = call(layout(base.to(device))), call(layout(base))
    assert_same(got, expected)
    assert got.stride() == expected.stride()


SHAPES = [((3, 1), (1, 4)), ((2, 3, 4), (4,)), ((), (3, 2)), ((1,), (5,)), ((2, 1, 3), (4, 1)), ((3, 4), (3, 4))]


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=[f"{left}-{right}" for left, right in SHAPES])
def test_broadcast_must_equal_cpu(agree, integers, left, right):
    agree(lambda x, y: (x + y, x * y, torch.where(x > y, x, y)), integers(*left), integers(*right), exact=True)


TERNARY = [
    pytest.param(lambda x, y: torch.addcmul(x, x, y, value=2), id="addcmul"),
    pytest.param(lambda x, y: torch.addcdiv(x, x, y, value=0.5), id="addcdiv"),
    pytest.param(lambda x, y: torch.lerp(x, y, 0.3), id="lerp-scalar"),
    pytest.param(lambda x, y: torch.lerp(x, y, y / 8), id="lerp-tensor"),
    pytest.param(lambda x, y: torch.clamp(x, y - 4, y), id="clamp-tensors"),
    pytest.param(lambda x, y: torch.where(x > y, 1.0, y), id="where-scalar"),
    pytest.param(torch.fmod, id="fmod"),
    pytest.param(torch.hypot, id="hypot"),
    pytest.param(torch.isclose, id="isclose"),
    pytest.param(torch.heaviside, id="heaviside"),
    pytest.param(lambda x, y: torch.frexp(x * y), id="frexp"),
    pytest.param(lambda x, y: torch.nan_to_num(x / (y - y)), id="nan_to_num"),
]


@pytest.mark.parametrize("call", TERNARY)
def test_operator_of_several_operands_must_equal_cpu(agree, call):
    agree(call, sample(torch.float32), positive(torch.float32))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64], ids=str)
@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bitwise_operator_must_equal_cpu(agree, name, dtype):
    agree(getattr(torch, name), positive(dtype), positive(dtype).flip(1), exact=True)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64], ids=str)
def test_shift_must_equal_cpu(agree, dtype):
    agree(lambda x, y: (x << y, x >> y), positive(dtype), positive(dtype).flip(1), exact=True)


ACTIVATIONS = [
    functional.gelu,
    functional.leaky_relu,
    functional.softplus,
    functional.hardswish,
    functional.hardtanh,
    functional.mish,
    functional.selu,
    functional.logsigmoid,
    functional.softsign,
    functional.relu6,
]


@pytest.mark.parametrize("call", ACTIVATIONS, ids=lambda call: call.__name__)
def test_activation_and_its_gradient_must_equal_cpu(agree, call):
    x = sample(torch.float32).requires_grad_()
    agree(lambda x: (call(x).detach(), *torch.autograd.grad(call(x).sum(), x)), x)
