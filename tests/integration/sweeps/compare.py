"""When two results are the same: shape and type before values, and PyTorch's own tolerances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import toleranceOverride

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import SampleInput

    from sweeps.cases import Case

# The test in which PyTorch itself compares CUDA with the CPU, and the tolerance that it sets.
THEIR_TEST = ("TestCommon", "test_compare_cpu")
THEIR_TOLERANCE = 1e-3
# The kernels of a device accumulate in another order than the CPU's; bfloat16's own rtol, for both half types.
HALF_TOLERANCE = 1.6e-2
# The CPU computes these by fused kernels or in pieces of its own, in another order than any device.
FUSED_ON_CPU = frozenset(
    {
        "nn.functional.linear_cross_entropy",
        "nn.functional.multi_head_attention_forward",
        "nn.functional.scaled_dot_product_attention",
    }
)
HALVES = (torch.float16, torch.bfloat16)
# Sums of exponentials of both signs cancel: on these samples the CPU's gradients in single precision are 3e-3 off its
# own in double precision.
CANCELLING = {("logcumsumexp", torch.float32): 1e-2}
# Neighbouring numbers of eight bits: a sum in another order may round to the next one.
EIGHT_BITS = {torch.float8_e4m3fn: 0.125, torch.float8_e5m2: 0.25}
# Their results are random numbers, or memory as it was found: only shape and type can agree.
RANDOM = frozenset(
    [
        "bernoulli",
        "cauchy",
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "exponential",
        "geometric",
        "log_normal",
        "multinomial",
        "new_empty",
        "new_empty_strided",
        "nn.functional.alpha_dropout",
        "nn.functional.dropout",
        "nn.functional.dropout2d",
        "nn.functional.dropout3d",
        "nn.functional.feature_alpha_dropout",
        "nn.functional.fractional_max_pool2d",
        "nn.functional.fractional_max_pool3d",
        "nn.functional.rrelu",
        "normal",
        "pca_lowrank",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "svd_lowrank",
        "uniform",
    ]
)


def is_random(case: Case, sample: SampleInput) -> bool:
    """Whether arguments do not determine a call's result: by the operator's nature, or for a dropout asked for."""
    dropout = sample.kwargs.get("dropout_p", 0.0)
    # Its probability is one of many positional arguments; the database asks for dropout where it says training.
    inside = case.op.name == "nn.functional.multi_head_attention_forward" and sample.kwargs.get("training", False)
    return case.op.name in RANDOM or bool(dropout) or bool(inside)


def overrides_among(decorators: list[Any], dtype: torch.dtype) -> list[Any]:
    """Return the tolerances for a type that the database's decorators of a test ask for."""
    found = (decorator.d for decorator in decorators if isinstance(decorator, toleranceOverride))
    return [tolerances[dtype] for tolerances in found if dtype in tolerances]


def tolerance_of(case: Case, *, software: bool) -> dict[str, float]:
    """Return rtol and atol for an operator's results.

    On a software device, whose kernels are the CPU's, torch.testing's defaults or what the database asks for; on others
    at least what PyTorch's own comparison with the CPU grants.
    """
    overrides = overrides_among(case.op.get_decorators(*THEIR_TEST, "cuda", case.dtype, {}), case.dtype)
    same_kernels = software and case.op.name not in FUSED_ON_CPU
    granted = least_tolerance(case.dtype, overrides, same_kernels=same_kernels)
    least = 0.0 if same_kernels else CANCELLING.get((case.op.name, case.dtype), 0.0)
    return {name: max(value, least) for name, value in granted.items()}


def least_tolerance(dtype: torch.dtype, overrides: list[Any], *, same_kernels: bool) -> dict[str, float]:
    """Return the widest of torch.testing's default, the overrides, and what a device's own kernels are granted."""
    rtol, atol = default_tolerances(dtype)
    for override in overrides:
        rtol, atol = max(rtol, override.rtol), max(atol, override.atol)
    if not same_kernels and (dtype.is_floating_point or dtype.is_complex):
        least = HALF_TOLERANCE if dtype in HALVES else THEIR_TOLERANCE
        rtol, atol = max(rtol, least), max(atol, least)
    return {"rtol": rtol, "atol": atol}


def comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Return what torch.testing has no tolerance or no kernels for in a type that it has; no number changes."""
    if tensor.dtype in EIGHT_BITS:
        return tensor.float()
    return tensor.to(torch.complex64) if tensor.dtype is torch.complex32 else tensor


def _loosened(tolerance: dict[str, float], dtype: torch.dtype) -> dict[str, float]:
    """A result may be of a coarser type than the operator's input."""
    if dtype in EIGHT_BITS:
        return {"rtol": EIGHT_BITS[dtype], "atol": tolerance["atol"]}
    rtol, atol = default_tolerances(dtype)
    return {"rtol": max(rtol, tolerance["rtol"]), "atol": max(atol, tolerance["atol"])}


def assert_agrees(got: Any, expected: Any, *, tolerance: dict[str, float] | None, where: str) -> None:
    """Compare a result on the device with the CPU's. Without a tolerance, values are not compared."""
    if isinstance(expected, torch.Tensor):
        _assert_tensor(got, expected, tolerance=tolerance, where=where)
    elif isinstance(expected, (list, tuple)):
        assert isinstance(got, (list, tuple)), f"{where}: {type(got).__name__}, expected {type(expected).__name__}"
        assert len(got) == len(expected), f"{where}: {len(got)} parts, expected {len(expected)}"
        for index, (one, other) in enumerate(zip(got, expected, strict=True)):
            assert_agrees(one, other, tolerance=tolerance, where=f"{where}[{index}]")
    elif isinstance(expected, (float, complex)):
        if tolerance is not None:
            torch.testing.assert_close(got, expected, equal_nan=True, **tolerance)
    elif not isinstance(expected, torch.device) and tolerance is not None:
        assert got == expected, f"{where}: {got!r}, expected {expected!r}"


def _assert_tensor(got: Any, expected: torch.Tensor, *, tolerance: dict[str, float] | None, where: str) -> None:
    assert isinstance(got, torch.Tensor), f"{where}: {type(got).__name__}, expected a tensor"
    assert got.device.type == "flagos", f"{where} is on {got.device}, expected flagos"
    assert got.dtype == expected.dtype, f"{where}: dtype {got.dtype}, expected {expected.dtype}"
    assert got.shape == expected.shape, f"{where}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    assert got.layout == expected.layout, f"{where}: layout {got.layout}, expected {expected.layout}"
    if tolerance is not None:
        torch.testing.assert_close(
            comparable(got.detach().cpu()),
            comparable(expected.detach()),
            equal_nan=True,
            msg=lambda text: f"{where}: {text}",
            **_loosened(tolerance, expected.dtype),
        )
