"""Matrix products of sizes 0 and 1, where vendor kernels are known to fail.

A kernel that aborts takes the process along: each case is a test of its own, so that the report names it and the others
still run. The case `[1-1-1]` of bmm is such an abort on one vendor's hardware.
"""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.device

SIZES = (0, 1, 2, 17)


@pytest.mark.parametrize("inner", SIZES)
@pytest.mark.parametrize("outer", SIZES)
@pytest.mark.parametrize("batch", SIZES)
def test_bmm_of_degenerate_shape_must_equal_cpu(agree, integers, batch, outer, inner):
    agree(torch.bmm, integers(batch, outer, inner), integers(batch, inner, outer), exact=True)


@pytest.mark.parametrize("columns", SIZES)
@pytest.mark.parametrize("inner", SIZES)
@pytest.mark.parametrize("rows", SIZES)
def test_mm_of_degenerate_shape_must_equal_cpu(agree, integers, rows, inner, columns):
    agree(torch.mm, integers(rows, inner), integers(inner, columns), exact=True)


@pytest.mark.parametrize(
    ("batch", "outer", "inner"), [(0, 2, 2), (2, 0, 2), (2, 2, 0), (2, 1, 1), (1, 2, 1), (1, 1, 2), (17, 1, 17)]
)
def test_baddbmm_of_degenerate_shape_must_equal_cpu(agree, integers, batch, outer, inner):
    operands = integers(batch, outer, outer), integers(batch, outer, inner), integers(batch, inner, outer)
    agree(lambda c, a, b: torch.baddbmm(c, a, b, beta=2), *operands, exact=True)


@pytest.mark.parametrize(("rows", "inner"), [(0, 3), (3, 0), (1, 1), (1, 17), (17, 1)])
def test_matrix_times_vector_of_degenerate_shape_must_equal_cpu(agree, integers, rows, inner):
    agree(torch.mv, integers(rows, inner), integers(inner), exact=True)
    agree(torch.addmv, integers(rows), integers(rows, inner), integers(inner), exact=True)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1)])
def test_addmm_of_degenerate_shape_must_equal_cpu(agree, integers, rows, inner, columns):
    operands = integers(rows, columns), integers(rows, inner), integers(inner, columns)
    agree(lambda c, a, b: torch.addmm(c, a, b, beta=3), *operands, exact=True)
