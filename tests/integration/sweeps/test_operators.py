"""Every operator of PyTorch's database: results, strided operands, in-place forms, out=, and what it refuses."""

from __future__ import annotations

import operator
from functools import partial

import pytest
import torch

from sweeps.running import call
from sweeps.samples import samples_of, tensors_in
from sweeps.selection import sweep
from sweeps.undetermined import determined

pytestmark = pytest.mark.device


@sweep("forward")
def test_operator_must_agree_with_the_cpu(case, sides):
    sides.compare(case, partial(sides.result, case), samples_of(case))


@sweep("strided")
def test_operator_must_take_strided_operands(case, sides):
    samples = [sample.noncontiguous() for sample in samples_of(case, count=3)]
    # Some operators want contiguous operands, on any device.
    sides.compare(case, partial(sides.result, case), samples, refusable=True)


@sweep("inplace")
def test_inplace_form_must_change_its_operand_alike(case, sides):
    def act(sample):
        operand = sample.input
        result = call(case.op.inplace_variant, sample)
        # Lists of tensors are changed in place without being returned.
        assert result is None or isinstance(result, (list, tuple)) or result is operand
        return operand

    # Results of another type than the operand do not fit into it, on any device.
    sides.compare(case, act, samples_of(case, count=4), refusable=True)


def _like(value, make):
    """Tensors made after a result's, which is a tensor or a tuple of them."""
    return make(value) if isinstance(value, torch.Tensor) else tuple(make(part) for part in value)


def _strided(tensor):
    """An out= of the right size whose elements lie apart."""
    storage = tensor.new_zeros((*tensor.shape, 2))
    return storage.select(-1, 1)


@sweep("out")
def test_out_form_must_fill_what_it_is_given(case, sides):
    def act(sample):
        plain = call(case.op, sample)
        given = [_like(plain, lambda one: one.new_empty(0)), _like(plain, _strided)]
        for out in given:
            result = case.op(sample.input, *sample.args, **sample.kwargs, out=out)
            # Operators that fill lists return nothing.
            assert result is None or all(map(operator.is_, tensors_in(result), tensors_in(out)))
        # What the CPU's own out= form writes is not the expectation: some of its kernels take a strided one for dense.
        filled = given if sides.is_there(plain) else [plain, plain]
        return [determined(case.op.name, sample, one, software=sides.software) for one in (plain, *filled)]

    sides.compare(case, act, samples_of(case, count=3))


def _call_or_refuse(op, sample):
    """A reflected operator refuses by returning NotImplemented, of which Python makes a TypeError."""
    if op(sample.input, *sample.args, **sample.kwargs) is NotImplemented:
        raise TypeError(f"{op.name} returned NotImplemented")


@sweep("errors")
def test_wrong_arguments_must_be_refused(case, sides):
    for wrong in case.op.error_inputs(str(sides.device)):
        with pytest.raises(wrong.error_type):
            _call_or_refuse(case.op, wrong.sample_input)
