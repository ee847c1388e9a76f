"""Results lie in memory as the vendor's own do: composites ask for the device, and choose the memory format by it."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from sweeps.cases import HOST_ARGUMENTS
from sweeps.compare import comparable, is_random, tolerance_of
from sweeps.running import attempt, call
from sweeps.samples import VendorMover, channels_last, samples_of, tensors_in, tensors_of
from sweeps.selection import sweep

pytestmark = pytest.mark.device


def _described(value):
    return [(tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype) for tensor in tensors_in(value)]


def _result(case, sample):
    # As on the vendor's side, whose tensors cannot have gradients beside flagos.
    with torch.no_grad():
        return call(case.op, sample)


def _vendors_result(case, sample, device):
    moved = VendorMover(device).sample(sample)
    if case.op.name in HOST_ARGUMENTS:
        moved.args, moved.kwargs = sample.args, sample.kwargs
    return _result(case, moved)


@sweep("strides")
def test_result_must_lie_in_memory_as_the_vendors_own(case, sides, device):
    limits = tolerance_of(case, software=sides.software)
    plain = [sample for sample in samples_of(case) if tensors_of(sample)]
    compared, refusal = 0, None
    for sample in (*plain, *filter(None, map(channels_last, plain))):
        theirs = attempt(partial(_vendors_result, case, sample, device))
        if theirs.error is not None:
            # The vendor has other limits; or PyTorch's Python part knows no CUDA, as beside a software device.
            refusal = theirs.error
            continue
        ours = _result(case, sides.moved(case, sample))
        assert _described(ours) == _described(theirs.value), sample.summary()
        if not is_random(case, sample):
            got, expected = ([comparable(one).cpu() for one in tensors_in(value)] for value in (ours, theirs.value))
            torch.testing.assert_close(got, expected, equal_nan=True, **limits)
        compared += 1
    if not compared:
        pytest.skip(f"{case.id}: nothing to compare: {refusal or 'no sample has a tensor'!r}")
