"""Compressed sparse tensors (CSR, CSC, BSR, BSC): where the vendor has kernels for them, flagos has them."""

from __future__ import annotations

import io

import pytest
import torch

pytestmark = pytest.mark.device

DENSE = torch.tensor([[0.0, 1.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 4.0, 0.0]])
COMPRESSED = [
    pytest.param(torch.sparse_csr, id="csr"),
    pytest.param(torch.sparse_csc, id="csc"),
    pytest.param(torch.sparse_bsr, id="bsr"),
    pytest.param(torch.sparse_bsc, id="bsc"),
]


def compressed(dense, layout):
    return dense.to_sparse(layout=layout, blocksize=(1, 2) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None)


def parts_of(tensor):
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return tensor.ccol_indices(), tensor.row_indices(), tensor.values()


def assert_on(device, tensor):
    assert tensor.device == device
    assert all(part.device == device for part in parts_of(tensor))


@pytest.mark.parametrize("layout", COMPRESSED)
def test_a_compressed_tensor_must_be_made_and_go_back(device, layout):
    here, there = compressed(DENSE, layout), compressed(DENSE.to(device), layout)
    assert_on(device, there)
    assert there.layout is layout
    assert [part.tolist() for part in parts_of(there)] == [part.tolist() for part in parts_of(here)]
    assert torch.equal(there.to_dense().cpu(), DENSE)
    assert torch.equal(there.to_sparse(layout=torch.sparse_coo).to_dense().cpu(), DENSE)


@pytest.mark.parametrize("layout", COMPRESSED)
def test_a_compressed_tensor_must_move_between_devices(device, layout):
    there = compressed(DENSE, layout).to(device)
    assert_on(device, there)
    back = there.cpu()
    assert back.layout is layout
    assert torch.equal(back.to_dense(), DENSE)


@pytest.mark.parametrize("layout", COMPRESSED)
def test_a_compressed_tensor_must_be_made_of_its_parts(device, layout):
    here = compressed(DENSE, layout)
    parts = [part.to(device) for part in parts_of(here)]
    there = torch.sparse_compressed_tensor(*parts, (3, 4), layout=layout)
    assert_on(device, there)
    assert torch.equal(there.to_dense().cpu(), DENSE)
    given = torch.sparse_compressed_tensor(*parts_of(here), (3, 4), layout=layout, device=device)
    assert_on(device, given)
    assert torch.equal(given.to_dense().cpu(), DENSE)


CSR_OPERATIONS = [
    pytest.param(lambda s, d: s @ d.t(), id="matmul"),
    pytest.param(lambda s, d: s @ d[0], id="matmul-vector"),
    pytest.param(lambda s, d: torch.addmm(d[:, :3].contiguous(), s, d.t().contiguous()), id="addmm"),
    pytest.param(lambda s, _: s + s, id="add"),
    pytest.param(lambda s, _: s * 2, id="mul-scalar"),
    pytest.param(lambda s, _: s.neg().sin(), id="unary"),
    pytest.param(lambda s, _: s.clone(), id="clone"),
    pytest.param(lambda s, _: s.sum(), id="sum"),
    pytest.param(lambda s, _: s.t(), id="t"),
]


@pytest.mark.parametrize("operation", CSR_OPERATIONS)
def test_an_operator_on_csr_operands_must_equal_cpu(device, operation):
    dense = torch.arange(12.0).reshape(3, 4) / 7
    expected = operation(DENSE.to_sparse_csr(), dense)
    got = operation(DENSE.to(device).to_sparse_csr(), dense.to(device))
    assert got.device == device
    assert got.layout == expected.layout
    torch.testing.assert_close(got.to_dense().cpu(), expected.to_dense(), rtol=1e-2, atol=1e-2)


def test_csr_must_take_inplace_operators_and_copies(device):
    there = DENSE.to(device).to_sparse_csr()
    there.mul_(3)
    assert torch.equal(there.to_dense().cpu(), DENSE * 3)
    there.copy_(DENSE.to(device).to_sparse_csr())
    assert torch.equal(there.to_dense().cpu(), DENSE)
    there.values().fill_(1)
    assert torch.equal(there.to_dense().cpu(), (DENSE != 0).float())


def test_gradients_must_flow_through_csr_products(device):
    weight = torch.ones(4, 2, device=device, requires_grad=True)
    (DENSE.to(device).to_sparse_csr() @ weight).sum().backward()
    assert torch.equal(weight.grad.cpu(), DENSE.sum(0)[:, None].expand(4, 2))


def test_csr_must_be_saved_loaded_and_shown(device):
    there = DENSE.to(device).to_sparse_csr()
    buffer = io.BytesIO()
    torch.save(there, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer).to_dense().cpu(), DENSE)
    assert f"device='{device}'" in repr(there)
