"""Kernels that libraries above PyTorch call by name, and what each must return, said with other operators on the CPU.

Many have no kernel for the CPU; a vendor may lack some of them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten
EPSILON = 1e-3
IMAGES = torch.linspace(-1, 1, 96).reshape(2, 3, 4, 4).sin() * 2
VOLUMES = torch.linspace(-1, 1, 96).reshape(1, 3, 2, 4, 4)
GRADIENT = torch.linspace(0, 3, 96).reshape(2, 3, 4, 4).cos()
WEIGHT, BIAS = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 0.0, -0.5])
CHANNEL = (0, 2, 3)
KERNEL = torch.linspace(-1, 1, 81).reshape(3, 3, 3, 3)
GATES = torch.linspace(-2, 2, 32).reshape(2, 16)
THETA = torch.tensor([[[1.0, 0.5, 0.0], [0.0, 1.0, 0.25]]])
HALVES = torch.linspace(-1, 1, 256).reshape(16, 16).half()


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One call on the device, and what it must equal on the CPU; both get copies of the operands."""

    act: Callable[..., Any]
    expected: Callable[..., Any]
    operands: tuple[Any, ...]


def _column(values: torch.Tensor) -> torch.Tensor:
    return values.reshape(-1, 1, 1)


def _statistics(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return images.mean(CHANNEL), (images.var(CHANNEL, unbiased=False) + EPSILON).rsqrt()


MEAN, INVERSE = _statistics(IMAGES)


def _normalised(x: Any, w: Any, b: Any, mean: Any, inverse: Any) -> Any:
    return (x - _column(mean)) * _column(inverse * w) + _column(b)


def _gathered(means: Any, inverses: Any) -> Any:
    """The statistics of equally large parts, together."""
    variances = inverses.pow(-2) - EPSILON
    mean = means.mean(0)
    return mean, ((variances + (means - mean) ** 2).mean(0) + EPSILON).rsqrt()


def _reduced(grad: Any, x: Any, mean: Any, inverse: Any) -> Any:
    total, weighted = grad.sum(CHANNEL), (grad * (x - _column(mean))).sum(CHANNEL)
    return total, weighted, weighted * inverse, total


def _normalised_backward(grad: Any, x: Any, mean: Any, inverse: Any, w: Any) -> Any:
    total, weighted, *_ = _reduced(grad, x, mean, inverse)
    count = x.numel() // x.shape[1]
    centred = (x - _column(mean)) * _column(inverse**2 * weighted / count)
    return (grad - _column(total / count) - centred) * _column(inverse * w)


def _normalised_backward_by_kernel(grad: Any, x: Any, mean: Any, inverse: Any, w: Any) -> Any:
    total, weighted, *_ = aten.batch_norm_backward_reduce(grad, x, mean, inverse, w, True, True, True)
    counts = torch.tensor([x.numel() // x.shape[1]], dtype=torch.int32, device=x.device)
    return aten.batch_norm_backward_elemt(grad, x, mean, inverse, w, total, weighted, counts)


def _lstm_cell(left: Any, right: Any, cell: Any) -> Any:
    enter, forget, new, out = (left + right).chunk(4, 1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def _gru_cell(left: Any, right: Any, hidden: Any) -> Any:
    (reset, update, new), (reset_h, update_h, new_h) = left.chunk(3, 1), right.chunk(3, 1)
    reset, update = (reset + reset_h).sigmoid(), (update + update_h).sigmoid()
    new = (new + reset * new_h).tanh()
    return new + update * (hidden - new)


def _grid_gradient(grad: Any) -> Any:
    theta = THETA.clone().requires_grad_()
    return torch.autograd.grad(functional.affine_grid(theta, (1, 1, 3, 3), align_corners=True), theta, grad)[0]


def _filled(operator: Any, result: Any, *operands: Any) -> Any:
    operator(*operands, out=result)
    return result


def _convolution(x: Any, w: Any) -> Any:
    return functional.conv2d(x, w, padding=1)


CUDNN = ([1, 1], [1, 1], [1, 1], 1, False, True, False)
KERNELS = {
    "batch_norm_stats": Kernel(
        act=lambda x: aten.batch_norm_stats(x, EPSILON), expected=_statistics, operands=(IMAGES,)
    ),
    "batch_norm_elemt": Kernel(
        act=lambda *all_: aten.batch_norm_elemt(*all_, EPSILON),
        expected=_normalised,
        operands=(IMAGES, WEIGHT, BIAS, MEAN, INVERSE),
    ),
    "batch_norm_elemt.out": Kernel(
        act=lambda x, *rest: _filled(aten.batch_norm_elemt.out, torch.empty_like(x), x, *rest, EPSILON),
        expected=_normalised,
        operands=(IMAGES, WEIGHT, BIAS, MEAN, INVERSE),
    ),
    "batch_norm_gather_stats": Kernel(
        act=lambda m, i: aten.batch_norm_gather_stats(m, m, i, None, None, 0.1, EPSILON, 32),
        expected=_gathered,
        operands=(torch.stack([MEAN, MEAN + 1]), torch.stack([INVERSE, INVERSE / 2])),
    ),
    "batch_norm_gather_stats_with_counts": Kernel(
        act=lambda m, i, n: aten.batch_norm_gather_stats_with_counts(m, m, i, None, None, 0.1, EPSILON, n),
        expected=lambda m, i, _: _gathered(m, i),
        operands=(torch.stack([MEAN, MEAN + 1]), torch.stack([INVERSE, INVERSE / 2]), torch.full((2,), 32.0)),
    ),
    "batch_norm_backward_reduce": Kernel(
        # CUDA's kernel asks the weight for its device, even where there is none.
        act=lambda *all_: aten.batch_norm_backward_reduce(*all_, True, True, True),
        expected=lambda *all_: _reduced(*all_[:-1]),
        operands=(GRADIENT, IMAGES, MEAN, INVERSE, WEIGHT),
    ),
    "batch_norm_backward_elemt": Kernel(
        act=_normalised_backward_by_kernel,
        expected=_normalised_backward,
        operands=(GRADIENT, IMAGES, MEAN, INVERSE, WEIGHT),
    ),
    "_conv_depthwise2d": Kernel(
        act=lambda x, w: aten._conv_depthwise2d(x, w, [3, 3], None, [1, 1], [1, 1], [1, 1]),
        expected=lambda x, w: functional.conv2d(x, w, padding=1, groups=3),
        operands=(IMAGES, KERNEL[:, :1].contiguous()),
    ),
    "conv_depthwise3d": Kernel(
        act=lambda x, w: aten.conv_depthwise3d(x, w, [1, 3, 3], None, [1, 1, 1], [0, 1, 1], [1, 1, 1]),
        expected=lambda x, w: functional.conv3d(x, w, padding=(0, 1, 1), groups=3),
        operands=(VOLUMES, KERNEL[:, :1, None].contiguous()),
    ),
    "_thnn_fused_lstm_cell": Kernel(
        act=lambda *all_: aten._thnn_fused_lstm_cell(*all_)[:2],
        expected=_lstm_cell,
        operands=(GATES, GATES / 2, GATES[:, :4].contiguous()),
    ),
    "_thnn_fused_gru_cell": Kernel(
        act=lambda *all_: aten._thnn_fused_gru_cell(*all_)[0],
        expected=_gru_cell,
        operands=(GATES[:, :12].contiguous(), GATES[:, 4:].contiguous() / 2, GATES[:, :4].contiguous()),
    ),
    "cudnn_affine_grid_generator": Kernel(
        act=lambda theta: aten.cudnn_affine_grid_generator(theta, 1, 1, 3, 3),
        expected=lambda theta: functional.affine_grid(theta, (1, 1, 3, 3), align_corners=True),
        operands=(THETA,),
    ),
    "cudnn_affine_grid_generator_backward": Kernel(
        act=lambda grad: aten.cudnn_affine_grid_generator_backward(grad, 1, 1, 3, 3),
        expected=_grid_gradient,
        operands=(torch.linspace(0, 1, 18).reshape(1, 3, 3, 2),),
    ),
    "cudnn_convolution": Kernel(
        act=lambda x, w: aten.cudnn_convolution(x, w, *CUDNN), expected=_convolution, operands=(IMAGES, KERNEL)
    ),
    "cudnn_convolution.out": Kernel(
        act=lambda x, w: _filled(aten.cudnn_convolution.out, torch.empty_like(x), x, w, *CUDNN),
        expected=_convolution,
        operands=(IMAGES, KERNEL),
    ),
    "cudnn_convolution_transpose": Kernel(
        act=lambda x, w: aten.cudnn_convolution_transpose(x, w, [1, 1], [0, 0], *CUDNN[1:]),
        expected=lambda x, w: functional.conv_transpose2d(x, w, padding=1),
        operands=(IMAGES, KERNEL),
    ),
    "cudnn_convolution_relu": Kernel(
        act=lambda x, w, b: aten.cudnn_convolution_relu(x, w, b, [1, 1], [1, 1], [1, 1], 1),
        expected=lambda x, w, b: functional.conv2d(x, w, b, padding=1).relu(),
        operands=(IMAGES, KERNEL, BIAS),
    ),
    "cudnn_convolution_add_relu": Kernel(
        act=lambda x, w, b: aten.cudnn_convolution_add_relu(x, w, x, 1.0, b, [1, 1], [1, 1], [1, 1], 1),
        expected=lambda x, w, b: (functional.conv2d(x, w, b, padding=1) + x).relu(),
        operands=(IMAGES, KERNEL, BIAS),
    ),
    "mm.dtype": Kernel(
        act=lambda x: aten.mm.dtype(x, x, torch.float32), expected=lambda x: x.float() @ x.float(), operands=(HALVES,)
    ),
    "addmm.dtype": Kernel(
        act=lambda b, x: aten.addmm.dtype(b, x, x, torch.float32),
        expected=lambda b, x: b + x.float() @ x.float(),
        operands=(HALVES.float(), HALVES),
    ),
    "bmm.dtype": Kernel(
        act=lambda x: aten.bmm.dtype(x[None], x[None], torch.float32),
        expected=lambda x: (x.float() @ x.float())[None],
        operands=(HALVES,),
    ),
    "baddbmm.dtype": Kernel(
        act=lambda b, x: aten.baddbmm.dtype(b[None], x[None], x[None], torch.float32),
        expected=lambda b, x: (b + x.float() @ x.float())[None],
        operands=(HALVES.float(), HALVES),
    ),
}
