"""Each out= and in-place form that an operator's kernels come with writes what the operator returns."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from sweeps.compare import comparable, is_random, tolerance_of
from sweeps.running import attempt
from sweeps.samples import samples_of, tensors_in, tensors_of
from sweeps.selection import sweep
from sweeps.siblings import Watch, run_sibling, siblings_of

pytestmark = pytest.mark.device


def _calls(case, sample):
    """Run an operator, and its backward pass where it has one, and return the calls that it came down to."""
    watch = Watch()
    with watch:
        result = case.op(sample.input, *sample.args, **sample.kwargs)
        outputs = [tensor for tensor in tensors_in(result) if tensor.requires_grad]
        inputs = [tensor for tensor in tensors_of(sample) if tensor.requires_grad]
        if outputs and inputs:
            torch.autograd.grad(outputs, inputs, [torch.ones_like(one) for one in outputs], allow_unused=True)
    return watch.seen


def _differentiates(case):
    """Lists of tensors are left out: the database's samples for them are not all differentiable."""
    return case.dtype.is_floating_point and case.op.supports_autograd and not case.op.name.startswith("_foreach_")


@sweep("siblings")
def test_out_and_inplace_kernels_must_write_what_the_operator_returns(case, sides):
    # A plan for an out= of other strides may round otherwise; the software device has one kernel for both.
    limits = {"rtol": 0.0, "atol": 0.0} if sides.software else tolerance_of(case, software=False)
    answered, refusal = 0, None
    for sample in samples_of(case, count=2, requires_grad=_differentiates(case)):
        calls = attempt(partial(_calls, case, sides.moved(case, sample)))
        if calls.error is not None:
            sides.check_vendor_refuses(partial(_calls, case), sample, calls.error)
            refusal = calls.error
            continue
        answered += 1
        for func, seen in calls.value.items():
            random = is_random(case, sample) or torch.Tag.nondeterministic_seeded in func.tags
            for sibling in siblings_of(func):
                written = run_sibling(sibling, seen)
                if written is not None and not random:
                    got, expected = ([comparable(one) for one in tensors_in(all_)] for all_ in (written, seen.result))
                    torch.testing.assert_close(got, expected, equal_nan=True, **limits)
    if not answered and refusal is not None:
        pytest.skip(f"{case.id}: nothing to compare, the vendor refuses: {refusal!r}")
