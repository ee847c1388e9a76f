"""Results lie in memory as the vendor's own do: composites ask for the device, and choose the memory format by it."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from sweeps.compare import comparable, is_random, tolerance_of
from sweeps.running import attempt, call
from sweeps.samples import VendorMover, channels_last, samples_of, tensors_in, tensors_of
from sweeps.selection import sweep
from sweeps.undetermined import ATTENTION

pytestmark = pytest.mark.device


def _described(value):
    return [(tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype) for tensor in tensors_in(value)]


def _numbers(case, value):
    """The same kernels ran on both sides, so that even what ties is the same."""
    return [comparable(one).cpu() for one in tensors_in(value[:2] if case.op.name in ATTENTION else value)]


def _result(case, sample):
    # As on the vendor's side, whose tensors cannot have gradients beside flagos.
    with torch.no_grad():
        return call(case.op, sample)


def _is_dense(sample):
    """Whether the vendor can be given the sample's tensors, of which there must be one to tell the device by."""
    tensors = tensors_of(sample)
    return bool(tensors) and all(tensor.layout is torch.strided for tensor in tensors)


@sweep("strides")
def test_result_must_lie_in_memory_as_the_vendors_own(case, sides):
    limits = tolerance_of(case, software=sides.software)
    plain = [sample for sample in samples_of(case) if _is_dense(sample)]
    compared, refusal = 0, None
    # What the vendor lacks runs on the CPU; beside a software device, PyTorch's Python part asserts that there is CUDA.
    own_reason = AssertionError if sides.software else NotImplementedError
    for sample in (*plain, *filter(None, map(channels_last, plain))):
        theirs = attempt(partial(_result, case, sides.moved(case, sample, by=VendorMover)))
        if theirs.error is not None:
            refusal = theirs.error
            if not isinstance(refusal, own_reason):
                with pytest.raises(type(refusal)):
                    _result(case, sides.moved(case, sample))
            continue
        ours = _result(case, sides.moved(case, sample))
        assert _described(ours) == _described(theirs.value), sample.summary()
        if not is_random(case, sample):
            got, expected = (_numbers(case, value) for value in (ours, theirs.value))
            torch.testing.assert_close(got, expected, equal_nan=True, **limits)
        compared += 1
    if not compared:
        pytest.skip(f"{case.id}: nothing to compare: {refusal or 'no sample has dense tensors'!r}")
