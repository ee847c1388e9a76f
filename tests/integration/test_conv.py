"""Convolution and pooling. Whole-numbered inputs keep the differences small where TF32 is in use."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

pytestmark = pytest.mark.device

# Whole numbers again, but a kernel may transform its inputs (Winograd, FFT), and then the last bits are lost.
WHOLE = {"rtol": 0.0, "atol": 0.05}

CONVOLUTIONS = [
    pytest.param(functional.conv1d, (2, 3, 12), (4, 3, 3), {}, id="1d"),
    pytest.param(functional.conv1d, (2, 4, 12), (6, 2, 3), {"groups": 2, "padding": 1}, id="1d-groups"),
    pytest.param(functional.conv1d, (3, 12), (4, 3, 3), {}, id="1d-unbatched"),
    pytest.param(functional.conv2d, (2, 3, 8, 9), (4, 3, 3, 2), {}, id="2d"),
    pytest.param(functional.conv2d, (2, 3, 8, 9), (4, 3, 3, 3), {"stride": 2, "padding": 1}, id="2d-stride-padding"),
    pytest.param(functional.conv2d, (2, 3, 9, 9), (4, 3, 3, 3), {"dilation": 2}, id="2d-dilation"),
    pytest.param(functional.conv2d, (2, 4, 8, 8), (4, 1, 3, 3), {"groups": 4}, id="2d-depthwise"),
    pytest.param(functional.conv2d, (2, 4, 8, 8), (6, 2, 3, 3), {"groups": 2, "padding": "same"}, id="2d-same"),
    pytest.param(functional.conv2d, (1, 3, 8, 8), (5, 3, 1, 1), {}, id="2d-1x1"),
    pytest.param(functional.conv3d, (1, 2, 5, 6, 7), (3, 2, 2, 3, 3), {"padding": 1}, id="3d"),
    pytest.param(functional.conv_transpose1d, (2, 3, 6), (3, 4, 3), {"stride": 2}, id="transposed-1d"),
    pytest.param(
        functional.conv_transpose2d, (2, 3, 5, 5), (3, 4, 3, 3), {"stride": 2, "output_padding": 1}, id="transposed-2d"
    ),
    pytest.param(functional.conv_transpose2d, (2, 4, 5, 5), (4, 3, 3, 3), {"groups": 2}, id="transposed-2d-groups"),
    pytest.param(functional.conv_transpose3d, (1, 2, 3, 3, 3), (2, 3, 2, 2, 2), {}, id="transposed-3d"),
]


@pytest.mark.parametrize(("call", "image", "weight", "options"), CONVOLUTIONS)
def test_convolution_must_equal_cpu(agree, integers, call, image, weight, options):
    agree(lambda x, w: call(x, w, **options), integers(*image), integers(*weight), tolerance=WHOLE)


@pytest.mark.parametrize(("call", "image", "weight", "options"), CONVOLUTIONS)
def test_gradients_of_a_convolution_must_equal_cpu(agree, integers, call, image, weight, options):
    channels = call(integers(*image), integers(*weight), **options).shape[-len(weight) + 1]

    def gradients(x, w, b):
        result = call(x, w, b, **options)
        slope = torch.arange(float(result.numel()), device=x.device).reshape(result.shape) % 3
        return torch.autograd.grad((result * slope).sum(), (x, w, b))

    inputs = integers(*image), integers(*weight), integers(channels)
    agree(gradients, *(value.requires_grad_() for value in inputs), tolerance=WHOLE)


MASKS = [(True, False, False), (False, True, False), (False, False, True), (True, False, True)]


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_only_the_wanted_gradients_must_be_computed(agree, integers, mask):
    def wanted(*inputs):
        result = functional.conv2d(*inputs)
        return torch.autograd.grad(result.sum(), [value for value, want in zip(inputs, mask, strict=True) if want])

    inputs = integers(1, 2, 5, 5), integers(3, 2, 3, 3), integers(3)
    agree(wanted, *(value.requires_grad_(want) for value, want in zip(inputs, mask, strict=True)), tolerance=WHOLE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_convolution_in_another_dtype_must_equal_cpu(agree, integers, dtype):
    agree(functional.conv2d, integers(1, 2, 6, 6, dtype=dtype), integers(3, 2, 3, 3, dtype=dtype), tolerance=WHOLE)


def test_convolution_of_channels_last_must_equal_cpu(agree, integers):
    image = integers(2, 4, 6, 6).contiguous(memory_format=torch.channels_last)
    agree(functional.conv2d, image, integers(3, 4, 3, 3), tolerance=WHOLE)


def test_convolution_of_a_strided_view_must_equal_cpu(agree, integers):
    agree(
        lambda x, w: functional.conv2d(x[:, ::2, 1:].transpose(2, 3), w),
        integers(2, 4, 7, 6),
        integers(3, 2, 3, 3),
        tolerance=WHOLE,
    )


def test_convolution_of_an_empty_batch_must_equal_cpu(agree, integers):
    agree(functional.conv2d, integers(0, 3, 6, 6), integers(4, 3, 3, 3), tolerance=WHOLE)


def test_second_derivative_of_a_convolution_must_equal_cpu(agree, integers):
    def second(x, w):
        (slope,) = torch.autograd.grad(functional.conv2d(x, w).pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(slope.sum(), (x, w))

    agree(second, integers(1, 2, 5, 5).requires_grad_(), integers(2, 2, 3, 3).requires_grad_(), tolerance=WHOLE)


def test_kernel_larger_than_the_image_must_raise_as_on_the_cpu(both_raise, integers):
    both_raise(functional.conv2d, integers(1, 1, 2, 2), integers(1, 1, 3, 3))


def test_channels_that_do_not_fit_must_raise_as_on_the_cpu(both_raise, integers):
    both_raise(functional.conv2d, integers(1, 2, 5, 5), integers(1, 3, 3, 3))


def test_fold_must_undo_unfold_as_on_the_cpu(agree, integers):
    agree(lambda x: functional.fold(functional.unfold(x, 2, stride=2), (6, 6), 2, stride=2), integers(1, 3, 6, 6))


POOLS = [
    pytest.param(lambda x: functional.max_pool2d(x, 2), id="max2d"),
    pytest.param(lambda x: functional.max_pool2d(x, 3, 2, 1), id="max2d-padding"),
    pytest.param(lambda x: functional.avg_pool2d(x, 2), id="avg2d"),
    pytest.param(lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False), id="avg2d-padding"),
    pytest.param(lambda x: functional.adaptive_avg_pool2d(x, (2, 3)), id="adaptive-avg2d"),
    pytest.param(lambda x: functional.adaptive_max_pool2d(x, 2), id="adaptive-max2d"),
    pytest.param(lambda x: functional.max_pool1d(x[:, :, 0], 2), id="max1d"),
    pytest.param(lambda x: functional.interpolate(x, scale_factor=2), id="nearest"),
    pytest.param(lambda x: functional.interpolate(x, (5, 7), mode="bilinear", align_corners=True), id="bilinear"),
    pytest.param(lambda x: functional.pad(x, (1, 2, 0, 1)), id="pad"),
    pytest.param(lambda x: functional.pad(x, (1, 1, 1, 1), mode="reflect"), id="pad-reflect"),
    pytest.param(lambda x: functional.pad(x, (1, 1, 1, 1), mode="replicate"), id="pad-replicate"),
    pytest.param(lambda x: functional.pixel_shuffle(x, 2), id="pixel_shuffle"),
]


@pytest.mark.parametrize("call", POOLS)
def test_pooling_and_resampling_and_their_gradients_must_equal_cpu(agree, call):
    def both(x):
        result = call(x)
        return result.detach(), torch.autograd.grad(result.square().sum(), x)[0]

    agree(both, (torch.randperm(2 * 4 * 6 * 6).reshape(2, 4, 6, 6) / 64).requires_grad_())
