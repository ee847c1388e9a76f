"""Operator calls made up at random do on flagos what they do on the CPU: results, side effects, sharing, refusals.

    python -m pytest -p no:cacheprovider tests/stress/test_random_calls.py

The variable FLAGOS_STRESS_CALLS is the number of calls (default: 10000); which ones they are is always the same.
"""

from __future__ import annotations

import os

import pytest

import torch_fl  # noqa: F401 - registers the device, and must come before torch

# isort: split

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stress.calls import BINARY, MODES, NAMES, OUTS, UNARY, UNCHECKED, Call, arity, run
from tests.stress.geometry import VIEWS, Operand

CALLS = int(os.environ.get("FLAGOS_STRESS_CALLS", "10000"))
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64, torch.float16)


@st.composite
def calls(draw):
    name = draw(st.sampled_from(NAMES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3).map(tuple))
    dtype = draw(st.sampled_from(DTYPES))
    operands = []
    for _ in range(arity(name)):
        # Now and then a size is 1, which broadcasts, or the type differs, which promotes.
        own = tuple(draw(st.sampled_from((size, size, size, 1))) for size in shape)
        operands.append(
            Operand(
                shape=own,
                view=draw(st.sampled_from(VIEWS)),
                dtype=draw(st.sampled_from((dtype, dtype, dtype, *DTYPES))),
                seed=draw(st.integers(0, 9)),
            )
        )
    # Only pointwise operators refuse a result that overlaps an operand; what others write then is not defined.
    outs = OUTS if name in (*UNARY, *BINARY) else [out for out in OUTS if out not in UNCHECKED]
    return Call(name=name, operands=tuple(operands), mode=draw(st.sampled_from(MODES)), out=draw(st.sampled_from(outs)))


@pytest.mark.device
@settings(
    max_examples=CALLS,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(call=calls())
def test_random_call_must_do_what_it_does_on_the_cpu(call):
    expected, found = run(call, "cpu"), run(call, "flagos")
    assert found.raised == expected.raised, found.text or expected.text
    assert found.storages == expected.storages
    # What a refused call has done to its target before is not promised; that nobody's memory is another's is.
    if not expected.raised:
        assert found.geometry == expected.geometry
        torch.testing.assert_close(found.values, expected.values, equal_nan=True)
