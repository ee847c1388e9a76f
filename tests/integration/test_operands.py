"""How operands and results pass between flagos and the vendor's kernels: identity, sharing, refusals, replacement."""

from __future__ import annotations

import textwrap

import pytest
import torch

pytestmark = pytest.mark.device


@pytest.fixture
def matrix(device):
    return torch.arange(12.0).reshape(4, 3).to(device)


def test_out_that_is_an_operand_must_not_be_resized_by_broadcasting(matrix):
    row = matrix[0].clone()
    with pytest.raises(RuntimeError, match=r"doesn't match the broadcast shape|output with shape"):
        torch.add(row, matrix, out=row)
    assert torch.equal(row.cpu(), torch.arange(3.0))


def test_one_tensor_as_every_operand_must_be_seen_as_one(matrix):
    square = torch.arange(9.0).reshape(3, 3).to(matrix.device)
    expected = torch.addmm(square.cpu(), square.cpu(), square.cpu())
    assert torch.equal(torch.addmm(square, square, square).cpu(), expected)
    assert torch.equal(torch.where(square > 4, square, square).cpu(), square.cpu())


@pytest.mark.parametrize("detach", [torch.Tensor.detach, lambda tensor: tensor.data], ids=["detach", "data"])
def test_detached_out_must_be_resized_or_refused_as_on_the_cpu(matrix, detach):
    def write(value):
        out = detach(torch.empty(0, device=value.device))
        try:
            torch.add(value, 1, out=out)
        except RuntimeError:
            return "refused", tuple(out.shape)
        return "written", tuple(out.shape)

    assert write(matrix) == write(matrix.cpu())


def test_failed_growth_of_an_out_must_leave_storage_and_shape_in_agreement(device, matrix):
    out = torch.empty(2, device=device)
    with pytest.raises(RuntimeError):
        torch.mm(matrix, matrix, out=out)
    assert out.untyped_storage().nbytes() >= out.numel() * out.element_size()
    out.fill_(3)
    assert out.cpu().tolist() == [3.0] * out.numel()


def test_views_of_one_tensor_must_be_aliases_and_results_must_not(matrix):
    alias = torch._C._is_alias_of
    assert alias(matrix[1:], matrix.t())
    assert not alias(matrix + 1, matrix)
    assert not alias(torch.cat((matrix, matrix)), matrix)


def test_two_results_of_one_operator_must_have_memory_of_their_own(matrix):
    values, indices = matrix.sort(0, descending=True)
    assert not torch._C._is_alias_of(values, indices)
    values.zero_()
    assert indices.cpu().tolist() == [[3] * 3, [2] * 3, [1] * 3, [0] * 3]


def test_set_must_free_the_memory_it_replaces_once(device):
    for _ in range(20):
        target, source = torch.zeros(1000, device=device), torch.ones(1000, device=device)
        target.set_(source)
        del source
        assert target.add_(1).sum().item() == 2000


def test_undefined_gradients_must_pass(matrix):
    weight = torch.ones(3, device=matrix.device)
    result = torch.nn.functional.layer_norm(matrix.requires_grad_(), (3,), weight)
    result.sum().backward()
    assert matrix.grad.shape == matrix.shape
    assert weight.grad is None


def test_tensor_list_and_tensor_operands_may_be_the_same(matrix):
    expected = torch.cat((matrix.cpu(), matrix.cpu(), matrix.cpu()[:1]))
    assert torch.equal(torch.cat((matrix, matrix, matrix[:1])).cpu(), expected)
    out = torch.empty(0, device=matrix.device)
    assert torch.cat((matrix, matrix, matrix[:1]), out=out) is out
    assert torch.equal(out.cpu(), expected)


def test_list_that_overlaps_its_out_must_be_refused(matrix):
    with pytest.raises(RuntimeError, match=r"overlap|single memory location"):
        torch.cat((matrix[:2], matrix[2:]), out=matrix)


def test_empty_list_element_that_is_the_out_must_be_refused_as_on_the_cpu(both_raise):
    both_raise(lambda empty, row: torch.cat((empty, row), out=empty), torch.empty(0, 3), torch.ones(1, 3))


def test_kernel_that_a_user_registers_must_win_over_the_plugins(python):
    program = """
        import torch_fl, torch
        library = torch.library.Library("aten", "IMPL")
        library.impl("add.Tensor", lambda a, b, *, alpha=1: torch.mul(a, 100), "PrivateUse1")
        print((torch.ones(2, device="flagos") + torch.ones(2, device="flagos")).tolist())
    """
    done = python(textwrap.dedent(program))
    assert (done.returncode, done.stdout.strip()) == (0, "[100.0, 100.0]"), done.stderr


def test_list_operand_that_a_kernel_keeps_must_outlive_the_call(python):
    program = """
        import torch_fl, torch
        kept = []
        library = torch.library.Library("aten", "IMPL")
        library.impl("cat", lambda tensors, dim=0: kept.append(tensors[7]) or tensors[3].clone(), "CUDA")
        made = torch.cat([torch.full((2,), float(index), device="flagos") for index in range(40)])
        again = [torch.cat([torch.zeros(2, device="flagos") for _ in range(40)]) for _ in range(3)]
        print(made.tolist(), torch.neg(kept[0]).cpu().tolist(), kept[0].device.type, len(kept))
    """
    done = python(textwrap.dedent(program))
    assert (done.returncode, done.stdout.strip()) == (0, "[3.0, 3.0] [-7.0, -7.0] cuda 4"), done.stderr
