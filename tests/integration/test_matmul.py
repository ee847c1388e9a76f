"""Matrix products. Inputs are small whole numbers, so that results are exact in every precision, TF32 included."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.device

PRODUCTS = [
    pytest.param(torch.mm, (17, 33), (33, 9), id="mm"),
    pytest.param(torch.bmm, (5, 7, 3), (5, 3, 4), id="bmm"),
    pytest.param(torch.mv, (6, 5), (5,), id="mv"),
    pytest.param(torch.dot, (40,), (40,), id="dot"),
    pytest.param(torch.outer, (4,), (6,), id="outer"),
    pytest.param(torch.inner, (3, 5), (2, 5), id="inner"),
    pytest.param(torch.kron, (2, 3), (3, 2), id="kron"),
    pytest.param(torch.matmul, (5,), (5,), id="matmul-1-1"),
    pytest.param(torch.matmul, (3, 5), (5,), id="matmul-2-1"),
    pytest.param(torch.matmul, (5,), (5, 4), id="matmul-1-2"),
    pytest.param(torch.matmul, (2, 3, 4, 5), (5, 6), id="matmul-4-2"),
    pytest.param(torch.matmul, (2, 1, 4, 5), (3, 5, 6), id="matmul-broadcast"),
    pytest.param(torch.matmul, (6, 4, 5), (5,), id="matmul-3-1"),
    pytest.param(lambda a, b: a @ b.mT, (3, 4, 5), (3, 2, 5), id="batch-transposed-right"),
    pytest.param(lambda a, b: a.t() @ b, (5, 3), (5, 4), id="transposed-left"),
    pytest.param(lambda a, b: a[::2, 1:] @ b[1:, ::2], (6, 5), (5, 6), id="strided"),
    pytest.param(lambda a, b: a[:1].expand(4, 5) @ b, (4, 5), (5, 3), id="expanded"),
    pytest.param(lambda a, b: torch.tensordot(a, b, dims=([1, 2], [0, 1])), (2, 3, 4), (3, 4, 5), id="tensordot"),
    pytest.param(lambda a, b: torch.einsum("bij,bjk->bik", a, b), (3, 4, 5), (3, 5, 2), id="einsum"),
    pytest.param(lambda a, b: torch.einsum("ij,kj->ik", a, b), (4, 5), (3, 5), id="einsum-transposed"),
    pytest.param(lambda a, b: torch.linalg.multi_dot([a, b, a]), (3, 4), (4, 3), id="multi_dot"),
    pytest.param(lambda a, b: torch.linalg.matrix_power(a @ b, 2), (3, 3), (3, 3), id="matrix_power"),
    pytest.param(torch.linalg.cross, (4, 3), (4, 3), id="cross"),
]


@pytest.mark.parametrize(("product", "left", "right"), PRODUCTS)
def test_product_must_equal_cpu(agree, integers, product, left, right):
    agree(product, integers(*left), integers(*right), exact=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64], ids=str)
def test_product_in_another_dtype_must_equal_cpu(agree, integers, dtype):
    agree(lambda a, b: (a @ b, a[0] @ b), integers(8, 6, dtype=dtype), integers(6, 5, dtype=dtype), exact=True)


ADDED = [
    pytest.param(torch.addmm, (4, 6), (4, 5), (5, 6), id="addmm"),
    pytest.param(lambda c, a, b: torch.addmm(c, a, b, beta=2, alpha=3), (4, 6), (4, 5), (5, 6), id="addmm-factors"),
    pytest.param(lambda c, a, b: torch.addmm(c, a, b, beta=0), (4, 6), (4, 5), (5, 6), id="addmm-beta-0"),
    pytest.param(torch.addmm, (6,), (4, 5), (5, 6), id="addmm-broadcast"),
    pytest.param(torch.addmv, (4,), (4, 5), (5,), id="addmv"),
    pytest.param(torch.addr, (4, 5), (4,), (5,), id="addr"),
    pytest.param(lambda c, a, b: torch.baddbmm(c, a, b, alpha=2), (3, 4, 6), (3, 4, 5), (3, 5, 6), id="baddbmm"),
    pytest.param(torch.addbmm, (4, 6), (3, 4, 5), (3, 5, 6), id="addbmm"),
    pytest.param(lambda c, a, b: c.addmm_(a, b), (4, 6), (4, 5), (5, 6), id="addmm_"),
    pytest.param(lambda c, a, b: c.t().addmm_(a, b), (6, 4), (4, 5), (5, 6), id="addmm_-transposed"),
    pytest.param(lambda c, a, b: torch.mm(a, b, out=c), (4, 6), (4, 5), (5, 6), id="mm-out"),
    pytest.param(lambda c, a, b: torch.bmm(a, b, out=c), (3, 4, 6), (3, 4, 5), (3, 5, 6), id="bmm-out"),
]


@pytest.mark.parametrize(("call", "added", "left", "right"), ADDED)
def test_product_with_something_added_must_equal_cpu(agree, integers, call, added, left, right):
    agree(call, integers(*added), integers(*left), integers(*right), exact=True)


def test_beta_zero_must_ignore_nan_in_what_is_added(agree, integers):
    agree(
        lambda c, a, b: torch.addmm(c, a, b, beta=0),
        torch.full((2, 2), float("nan")),
        integers(2, 3),
        integers(3, 2),
        exact=True,
    )


@pytest.mark.parametrize("shapes", [((2, 3), (4, 5)), ((3,), (4,)), ((2, 3, 4), (3, 4, 5))], ids=str)
def test_shapes_that_do_not_fit_must_raise_as_on_the_cpu(both_raise, integers, shapes):
    both_raise(torch.matmul, *(integers(*shape) for shape in shapes))


def test_dtypes_that_differ_must_raise_as_on_the_cpu(both_raise, integers):
    both_raise(torch.mm, integers(2, 2), integers(2, 2, dtype=torch.float64))


GRADIENTS = [
    pytest.param(torch.mm, (4, 5), (5, 6), id="mm"),
    pytest.param(torch.bmm, (3, 4, 5), (3, 5, 6), id="bmm"),
    pytest.param(torch.matmul, (2, 3, 4, 5), (5, 6), id="matmul"),
    pytest.param(torch.mv, (4, 5), (5,), id="mv"),
    pytest.param(torch.dot, (5,), (5,), id="dot"),
]


@pytest.mark.parametrize(("product", "left", "right"), GRADIENTS)
def test_gradient_of_a_product_must_equal_cpu(agree, integers, product, left, right):
    def gradients(a, b):
        result = product(a, b)
        weights = torch.arange(float(result.numel()), device=a.device).reshape(result.shape) % 5
        return torch.autograd.grad((result * weights).sum(), (a, b))

    agree(gradients, integers(*left).requires_grad_(), integers(*right).requires_grad_(), exact=True)


DECOMPOSITIONS = [
    pytest.param(torch.linalg.inv, id="inv"),
    pytest.param(torch.linalg.det, id="det"),
    pytest.param(torch.linalg.cholesky, id="cholesky"),
    pytest.param(torch.linalg.eigvalsh, id="eigvalsh"),
    pytest.param(torch.linalg.svdvals, id="svdvals"),
    pytest.param(lambda m: torch.linalg.solve(m, m[:, :2]), id="solve"),
]


@pytest.mark.parametrize("call", DECOMPOSITIONS)
def test_linear_algebra_must_equal_cpu(agree, call):
    """Opens libtorch_cuda_linalg by bare name where the vendor has one."""
    spread = torch.arange(16, dtype=torch.float64).reshape(4, 4) / 16
    agree(call, spread @ spread.T + torch.eye(4, dtype=torch.float64))
