"""Kernels that the CPU has as well: called by their own names, they agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sweeps.kernels import BIAS, GRADIENT, IMAGES, KERNEL, VOLUMES

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten
INTS = torch.arange(1, 7).reshape(2, 3)
REALS = torch.linspace(-2, 2, 12).reshape(3, 4)
MASK = REALS > 0.5
SORTED = torch.linspace(0, 1, 6)
LIST = [REALS + 3, REALS.T.contiguous() + 4, REALS[0] + 5]
SCALE, ZERO = torch.tensor([0.125]), torch.tensor([3], dtype=torch.int32)
SCALES, ZEROS = torch.tensor([0.125, 0.25, 0.5]), torch.tensor([3, 0, -1], dtype=torch.int32)
OFF_TIES = REALS * 0.93 + 0.011
INDICES, OFFSETS = torch.tensor([0, 2, 1, 2, 0]), torch.tensor([0, 2])


def _bag(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run an embedding bag, and what follows it with its own by-products, which each backend lays out as it likes."""

    def run(weight: Any, indices: Any, offsets: Any, scales: Any) -> Any:
        parts = aten._embedding_bag(weight, indices, offsets, False, 0, False, scales)
        return parts[0], function(weight, indices, offsets, scales, parts)

    return run


def _bag_backward(weight: Any, indices: Any, offsets: Any, scales: Any, parts: Any) -> Any:
    return aten._embedding_bag_backward(
        torch.ones_like(parts[0]), indices, offsets, *parts[1:], len(weight), False, 0, False, scales
    )


def _bag_scales_backward(weight: Any, indices: Any, offsets: Any, _: Any, parts: Any) -> Any:
    return aten._embedding_bag_per_sample_weights_backward(
        torch.ones_like(parts[0]), weight, indices, offsets, parts[1], 0
    )


def _drawn_without_spread(x: Any) -> Any:
    return aten.normal.float_Tensor_out(2.0, torch.zeros_like(x), out=torch.empty_like(x))


QUANTS = (-8, 7)
BAG = (REALS, INDICES, OFFSETS, SORTED[:5].contiguous())
# By the name of the operator: what has a kernel on the CPU too.
ALIKE: dict[str, tuple[Any, ...]] = {
    "slow_conv_dilated2d": (
        lambda x, w: aten.slow_conv_dilated2d(x, w, [3, 3], None, [1, 1], [2, 2], [2, 2]),
        IMAGES,
        KERNEL,
    ),
    "slow_conv_dilated3d": (
        lambda x, w: aten.slow_conv_dilated3d(x, w, [1, 3, 3], None, [1, 1, 1], [0, 2, 2], [1, 2, 2]),
        VOLUMES,
        KERNEL[:, :, None].contiguous(),
    ),
    "slow_conv_transpose2d": (lambda x, w, b: aten.slow_conv_transpose2d(x, w, [3, 3], b), IMAGES, KERNEL, BIAS),
    "slow_conv_transpose2d.out": (
        lambda x, w: aten.slow_conv_transpose2d.out(x, w, [3, 3], out=x.new_empty(0)),
        IMAGES,
        KERNEL,
    ),
    "slow_conv_transpose3d": (
        lambda x, w: aten.slow_conv_transpose3d(x, w, [1, 3, 3]),
        VOLUMES,
        KERNEL[:, :, None].contiguous(),
    ),
    "slow_conv_transpose3d.out": (
        lambda x, w: aten.slow_conv_transpose3d.out(x, w, [1, 3, 3], out=x.new_empty(0)),
        VOLUMES,
        KERNEL[:, :, None].contiguous(),
    ),
    "_slow_conv2d_forward": (
        lambda x, w, b: aten._slow_conv2d_forward(x, w, [3, 3], b, [1, 1], [1, 1]),
        IMAGES,
        KERNEL,
        BIAS,
    ),
    "_slow_conv2d_backward.output_mask": (
        lambda g, x, w: aten._slow_conv2d_backward.output_mask(g, x, w, [3, 3], [1, 1], [1, 1], [True, True, True]),
        GRADIENT,
        IMAGES,
        KERNEL,
    ),
    "batch_norm_update_stats": (
        lambda x, m, v: aten.batch_norm_update_stats(x, m, v, 0.1),
        IMAGES,
        torch.zeros(3),
        torch.ones(3),
    ),
    "_masked_softmax": (lambda x, mask: aten._masked_softmax(x, mask, 1, 2), REALS, MASK),
    "_masked_softmax_backward": (
        lambda g, x, mask: aten._masked_softmax_backward(g, aten._masked_softmax(x, mask, 1, 2), mask, 1),
        REALS.cos(),
        REALS,
        REALS.sin() > 0.5,
    ),
    "_dirichlet_grad": (aten._dirichlet_grad, SORTED[1:5] / 2, SORTED[1:5] + 1, torch.full((4,), 6.0)),
    "_compute_linear_combination": (aten._compute_linear_combination, REALS, torch.ones(2, 3)),
    "fake_quantize_per_tensor_affine_cachemask": (
        lambda x: aten.fake_quantize_per_tensor_affine_cachemask(x, 0.125, 3, *QUANTS),
        OFF_TIES,
    ),
    "fake_quantize_per_channel_affine_cachemask": (
        lambda x, s, z: aten.fake_quantize_per_channel_affine_cachemask(x, s, z, 0, *QUANTS),
        OFF_TIES,
        SCALES,
        ZEROS,
    ),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": (
        lambda x, s, z, on: aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(x, s, z, on, *QUANTS),
        OFF_TIES,
        SCALE,
        ZERO,
        torch.ones(1, dtype=torch.int64),
    ),
    "_fake_quantize_learnable_per_tensor_affine": (
        lambda x, s, z: aten._fake_quantize_learnable_per_tensor_affine(x, s, z, *QUANTS),
        OFF_TIES,
        SCALE,
        ZERO.float(),
    ),
    "_fake_quantize_learnable_per_tensor_affine_backward": (
        lambda g, x, s, z: aten._fake_quantize_learnable_per_tensor_affine_backward(g, x, s, z, *QUANTS),
        REALS.cos(),
        OFF_TIES,
        SCALE,
        ZERO.float(),
    ),
    "_fake_quantize_learnable_per_channel_affine": (
        lambda x, s, z: aten._fake_quantize_learnable_per_channel_affine(x, s, z, 0, *QUANTS),
        OFF_TIES,
        SCALES,
        ZEROS.float(),
    ),
    "_fake_quantize_learnable_per_channel_affine_backward": (
        lambda g, x, s, z: aten._fake_quantize_learnable_per_channel_affine_backward(g, x, s, z, 0, *QUANTS),
        REALS.cos(),
        OFF_TIES,
        SCALES,
        ZEROS.float(),
    ),
    "_embedding_bag_backward": (_bag(_bag_backward), *BAG),
    "_embedding_bag_per_sample_weights_backward": (_bag(_bag_scales_backward), *BAG),
    "nonzero_static": (lambda x: aten.nonzero_static(x, size=4), INTS % 2),
    "_jagged_to_padded_dense_forward": (
        lambda x, at: aten._jagged_to_padded_dense_forward(x, [at], [2], 0.5),
        REALS,
        torch.tensor([0, 2, 3]),
    ),
    "range.out": (lambda x: aten.range.out(0, 4, 2, out=torch.empty_like(x)), REALS[0, :3].contiguous()),
    "eye.out": (lambda x: aten.eye.out(3, out=x.new_empty(0)), REALS),
    "norm.dtype_out": (
        lambda x: aten.norm.dtype_out(x, 2, [1], False, dtype=torch.float64, out=x.new_empty(0, dtype=torch.float64)),
        REALS,
    ),
    "searchsorted.Scalar_out": (
        lambda x: aten.searchsorted.Scalar_out(x, 0.5, out=x.new_empty(0, dtype=torch.int64)),
        SORTED,
    ),
    "isin.Scalar_Tensor_out": (
        lambda x: aten.isin.Scalar_Tensor_out(3, x, out=x.new_empty(0, dtype=torch.bool)),
        INTS,
    ),
    "isin.Tensor_Scalar_out": (
        lambda x: aten.isin.Tensor_Scalar_out(x, 3, out=x.new_empty(0, dtype=torch.bool)),
        INTS,
    ),
    "scatter.reduce_out": (
        lambda x, at: aten.scatter.reduce_out(x, 1, at, x, reduce="multiply", out=torch.empty_like(x)),
        REALS,
        torch.tensor([[0], [1], [2]]),
    ),
    "scatter.value_reduce_out": (
        lambda x, at: aten.scatter.value_reduce_out(x, 1, at, 3, reduce="add", out=torch.empty_like(x)),
        REALS,
        torch.tensor([[0], [1], [2]]),
    ),
    "normal.float_Tensor_out": (_drawn_without_spread, REALS),
    "set_": (aten.set_.default, REALS),
    "rrelu_with_noise.out": (
        lambda x: aten.rrelu_with_noise.out(x, torch.zeros_like(x), out=torch.empty_like(x)),
        REALS,
    ),
    **{
        f"{name}_.{kind}": (getattr(getattr(aten, f"{name}_"), kind), INTS.clone(), *other)
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for kind, other in (("Scalar", (3,)), ("Tensor", (INTS.flip(0),)))
    },
    **{f"{name}_": (getattr(aten, f"{name}_"), INTS.clone(), INTS.flip(1)) for name in ("gcd", "lcm")},
    "bitwise_xor_.Tensor": (aten.bitwise_xor_.Tensor, INTS.clone(), INTS.flip(1)),
    "nextafter_": (aten.nextafter_, REALS, REALS.flip(0)),
    "heaviside_": (aten.heaviside_, REALS, REALS.cos()),
    "_foreach_add_.ScalarList": (lambda x: aten._foreach_add_.ScalarList(x, [1, 2, 3]), LIST),
    "_foreach_add_.Tensor": (aten._foreach_add_.Tensor, LIST, torch.tensor(2.0)),
    "_foreach_mul_.ScalarList": (lambda x: aten._foreach_mul_.ScalarList(x, [1, 2, 3]), LIST),
    "_foreach_addcdiv.Tensor": (lambda x: aten._foreach_addcdiv.Tensor(x, x, x, torch.ones(3)), LIST),
    "_foreach_addcdiv_.Tensor": (lambda x, y: aten._foreach_addcdiv_.Tensor(x, y, y, torch.ones(3)), LIST, LIST),
    "_foreach_addcmul.Tensor": (lambda x: aten._foreach_addcmul.Tensor(x, x, x, torch.ones(3)), LIST),
    "_foreach_addcmul_.Tensor": (lambda x, y: aten._foreach_addcmul_.Tensor(x, y, y, torch.ones(3)), LIST, LIST),
    "_foreach_clamp_max_.Scalar": (lambda x: aten._foreach_clamp_max_.Scalar(x, 4.0), LIST),
    "_foreach_clamp_min_.Scalar": (lambda x: aten._foreach_clamp_min_.Scalar(x, 4.0), LIST),
    "_foreach_pow.ScalarAndTensor": (lambda x: aten._foreach_pow.ScalarAndTensor(2.0, x), LIST),
    "_foreach_pow_.Scalar": (lambda x: aten._foreach_pow_.Scalar(x, 2.0), LIST),
}
