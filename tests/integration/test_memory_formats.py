"""Images and volumes in channels-last format: the vendor's results in the vendor's formats, and the CPU's numbers.

PyTorch's composites ask for the device before they choose a format, and take one for PrivateUse1 that CUDA's kernels
refuse.
"""

from __future__ import annotations

import math

import pytest
import torch
from sweeps.samples import CHANNELS_LAST
from torch.nn import functional

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("full_precision")]

IMAGE = (2, 4, 6, 6)
VOLUME = (2, 4, 4, 6, 6)

ANY = {
    "group_norm": lambda x: functional.group_norm(x, 2),
    "group_norm-scaled": lambda x: functional.group_norm(x, 2, x[0].flatten(1)[:, 0], x[1].flatten(1)[:, 0]),
    "batch_norm-training": lambda x: functional.batch_norm(x, None, None, training=True),
    "batch_norm-evaluating": lambda x: functional.batch_norm(x, x.detach()[0].flatten(1)[:, 0], x.new_ones(4)),
    "instance_norm": functional.instance_norm,
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: functional.rms_norm(x, x.shape[-1:]),
    "local_response_norm": lambda x: functional.local_response_norm(x, 2),
    "normalize": functional.normalize,
    "interpolate-nearest": lambda x: functional.interpolate(x, scale_factor=2),
    "interpolate-nearest-exact": lambda x: functional.interpolate(x, scale_factor=2, mode="nearest-exact"),
    "interpolate-area": lambda x: functional.interpolate(x, scale_factor=0.5, mode="area"),
    "pad-constant": lambda x: functional.pad(x, (1, 2)),
    "pad-circular": lambda x: functional.pad(x, (1, 2) * (x.dim() - 2), mode="circular"),
    "pad-replicate": lambda x: functional.pad(x, (1, 2) * (x.dim() - 2), mode="replicate"),
    "pad-reflect": lambda x: functional.pad(x, (1, 2) * (x.dim() - 2), mode="reflect"),
    "gelu": functional.gelu,
    "glu": lambda x: functional.glu(x, 1),
    "prelu": lambda x: functional.prelu(x, x[0].flatten(1)[:, 0]),
    "softmax": lambda x: functional.softmax(x, 1),
    "add": lambda x: x + x.contiguous(),
    "cat": lambda x: torch.cat((x, x), 1),
    "stack": lambda x: torch.stack((x, x)),
    "where": lambda x: torch.where(x > 0, x, x.contiguous()),
    "sum": lambda x: x.sum(-1),
    "sum-keepdim": lambda x: x.sum(1, keepdim=True),
    "clone": torch.clone,
    "double": lambda x: x.double(),
    "zeros_like": torch.zeros_like,
    "flip": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(1, -1),
    "repeat": lambda x: x.repeat(2, *[1] * (x.dim() - 1)),
    "channel_shuffle": lambda x: functional.channel_shuffle(x, 2),
}
OF_IMAGES = {
    "conv": lambda x: functional.conv2d(x, x[:, :, :3, :3], padding=1),
    "conv-depthwise": lambda x: functional.conv2d(x, x[:, :, :3, :3].reshape(8, 1, 3, 3)[:4], groups=4),
    "conv_transpose": lambda x: functional.conv_transpose2d(x, x[:, :, :3, :3].transpose(0, 1)[:, :2], stride=2),
    "max_pool": lambda x: functional.max_pool2d(x, 2),
    "max_pool-indices": lambda x: functional.max_pool2d(x, 2, return_indices=True),
    "avg_pool": lambda x: functional.avg_pool2d(x, 2),
    "lp_pool": lambda x: functional.lp_pool2d(x, 2, 2),
    "adaptive_avg_pool": lambda x: functional.adaptive_avg_pool2d(x, 3),
    "adaptive_avg_pool-one": lambda x: functional.adaptive_avg_pool2d(x, 1),
    "adaptive_max_pool": lambda x: functional.adaptive_max_pool2d(x, 3),
    "interpolate-bilinear": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "interpolate-bicubic": lambda x: functional.interpolate(x, scale_factor=2, mode="bicubic"),
    "pixel_shuffle": lambda x: functional.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: functional.pixel_unshuffle(x, 2),
    "unfold": lambda x: functional.unfold(x, 3),
    "grid_sample": lambda x: functional.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False),
    "log_softmax-nll": lambda x: functional.cross_entropy(x, x[:, 0].detach().long().abs()),
}
OF_VOLUMES = {
    "conv": lambda x: functional.conv3d(x, x[:, :, :3, :3, :3], padding=1),
    "conv_transpose": lambda x: functional.conv_transpose3d(x, x[:, :, :3, :3, :3].transpose(0, 1)[:, :2]),
    "max_pool": lambda x: functional.max_pool3d(x, 2),
    "avg_pool": lambda x: functional.avg_pool3d(x, 2),
    "adaptive_avg_pool": lambda x: functional.adaptive_avg_pool3d(x, 2),
    "interpolate-trilinear": lambda x: functional.interpolate(x, scale_factor=2, mode="trilinear"),
}
CASES = [
    pytest.param(function, shape, id=f"{name}-{kind}")
    for kind, shape, functions in (("image", IMAGE, ANY | OF_IMAGES), ("volume", VOLUME, ANY | OF_VOLUMES))
    for name, function in functions.items()
]


@pytest.fixture
def channels_last(integers):
    def make(shape):
        # No two are equal: which of them is the largest is the same everywhere.
        values = integers(*shape) + torch.linspace(0, 0.5, math.prod(shape)).reshape(shape)
        return values.contiguous(memory_format=CHANNELS_LAST[len(shape)])

    return make


def _tensors(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize(("function", "shape"), CASES)
def test_results_must_have_the_vendors_format(to_device, channels_last, function, shape):
    operand = to_device(channels_last(shape))
    assert operand.is_contiguous(memory_format=CHANNELS_LAST[len(shape)])
    with torch.no_grad():
        theirs = _tensors(function(torch.flagos.to_vendor(operand)))
        ours = _tensors(function(operand))
    assert [one.stride() for one in ours] == [one.stride() for one in theirs]
    for mine, vendors in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.cpu(), vendors.cpu())


@pytest.mark.parametrize(("function", "shape"), CASES)
def test_results_and_gradients_must_equal_the_cpu(agree, channels_last, function, shape):
    def act(operand):
        result = function(operand)
        first = _tensors(result)[0]
        return (result, *torch.autograd.grad(first.sum(), operand)) if first.requires_grad else result

    agree(act, channels_last(shape).requires_grad_(), tolerance={"rtol": 1e-3, "atol": 1e-4})
