"""Sparse tensors (COO): where the vendor has kernels for them, flagos has them."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

pytestmark = pytest.mark.device

DENSE = torch.tensor([[0.0, 1.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 4.0, 0.0]])


@pytest.fixture
def coo(device):
    return DENSE.to(device).to_sparse()


def assert_on(device, *tensors):
    for tensor in tensors:
        assert {tensor.device, tensor._indices().device, tensor._values().device} == {device}


def test_a_sparse_tensor_must_be_made_of_its_parts(device):
    indices, values = torch.tensor([[0, 2, 2], [1, 0, 2]]), torch.tensor([1.0, 3.0, 4.0])
    there = torch.sparse_coo_tensor(indices.to(device), values.to(device), (3, 4))
    assert_on(device, there)
    assert (there.layout, there.is_sparse, there.shape, there._nnz()) == (torch.sparse_coo, True, (3, 4), 3)
    assert (there.sparse_dim(), there.dense_dim(), there.is_coalesced()) == (2, 0, False)
    assert torch.equal(there.to_dense().cpu(), torch.sparse_coo_tensor(indices, values, (3, 4)).to_dense())


def test_a_sparse_tensor_must_be_made_from_lists_and_for_a_device(device):
    there = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), device=device)
    assert_on(device, there)
    assert there.to_dense().tolist() == [[0, 1], [2, 0]]
    empty = torch.sparse_coo_tensor(size=(2, 3), device=device)
    assert (empty._nnz(), empty.to_dense().tolist()) == (0, [[0] * 3] * 2)
    assert torch.zeros(2, 3, device=device, layout=torch.sparse_coo).to_dense().tolist() == [[0] * 3] * 2


def test_dense_dimensions_must_be_kept(device):
    there = torch.arange(12.0).reshape(2, 3, 2).to(device).to_sparse(2)
    assert (there.sparse_dim(), there.dense_dim()) == (2, 1)
    assert there._values().shape == (6, 2)
    assert torch.equal(there.to_dense().cpu(), torch.arange(12.0).reshape(2, 3, 2))


def test_a_dense_tensor_must_go_to_sparse_and_back(device, coo):
    assert_on(device, coo)
    assert coo.is_coalesced()
    assert torch.equal(coo.to_dense().cpu(), DENSE)
    assert torch.equal(coo.indices().cpu(), DENSE.to_sparse().indices())
    assert torch.equal(coo.values().cpu(), DENSE.to_sparse().values())


def test_sparse_tensors_must_move_between_devices_and_keep_what_they_are(device):
    here = torch.sparse_coo_tensor([[1, 1, 0], [0, 0, 1]], [1.0, 2.0, 3.0], (2, 2))
    there = here.to(device)
    assert_on(device, there)
    assert not there.is_coalesced()
    back = there.cpu()
    assert back.device.type == "cpu"
    assert torch.equal(back._indices(), here._indices())
    assert torch.equal(back._values(), here._values())
    assert here.coalesce().to(device).is_coalesced()
    assert there.to(device) is there


def test_coalesce_must_sum_duplicates_and_leave_the_original(device):
    there = torch.sparse_coo_tensor([[1, 1, 0], [0, 0, 1]], [1.0, 2.0, 3.0], (2, 2), device=device)
    summed = there.coalesce()
    assert summed.is_coalesced()
    assert not there.is_coalesced()
    assert (summed._nnz(), there._nnz()) == (2, 3)
    assert summed.values().tolist() == [3, 3]
    assert summed.coalesce() is summed
    with pytest.raises(RuntimeError, match="uncoalesced"):
        there.values()


def test_the_parts_must_share_memory_with_the_tensor(coo):
    coo._values().mul_(2)
    assert torch.equal(coo.to_dense().cpu(), DENSE * 2)
    coo.values().zero_()
    assert coo.to_dense().abs().sum().item() == 0
    assert coo._values().data_ptr() == coo._values().data_ptr()


def test_a_sparse_tensor_must_share_what_it_was_made_of(device):
    values = torch.ones(2, device=device)
    there = torch.sparse_coo_tensor(torch.tensor([[0, 1]], device=device), values, (2,))
    values.mul_(5)
    assert there.to_dense().tolist() == [5, 5]


OPERATIONS = [
    pytest.param(lambda s, _: s + s, id="add"),
    pytest.param(lambda s, _: s - s * 0.5, id="sub"),
    pytest.param(lambda s, d: d + s, id="add-to-dense"),
    pytest.param(lambda s, _: s * s, id="mul"),
    pytest.param(lambda s, _: s * 3, id="mul-scalar"),
    pytest.param(lambda s, _: s / 2, id="div-scalar"),
    pytest.param(lambda s, _: -s, id="neg"),
    pytest.param(lambda s, _: s.t(), id="t"),
    pytest.param(lambda s, _: s.abs().sqrt(), id="unary"),
    pytest.param(lambda s, _: torch.cat([s, s], 1), id="cat"),
    pytest.param(lambda s, _: s.sum(), id="sum"),
    pytest.param(lambda s, _: torch.sparse.sum(s, 0), id="sum-dim"),
    pytest.param(lambda s, _: torch.sparse.softmax(s, 1), id="softmax"),
    pytest.param(lambda s, d: torch.mm(s, d.t()), id="mm"),
    pytest.param(lambda s, d: s @ d[0], id="mv"),
    pytest.param(lambda s, _: torch.sparse.mm(s, s.t()), id="mm-sparse"),
    pytest.param(lambda s, d: torch.addmm(d[:, :3], s, d.t(), beta=0.5, alpha=2), id="addmm"),
    pytest.param(lambda s, d: torch.sparse.addmm(d[:, :3], s, d.t()), id="sparse-addmm"),
    pytest.param(lambda s, d: d.sparse_mask(s), id="sparse_mask"),
    pytest.param(lambda s, _: s.index_select(0, torch.tensor([2, 0], device=s.device)), id="index_select"),
    pytest.param(lambda s, _: s.clone(), id="clone"),
    pytest.param(lambda s, _: s.double(), id="double"),
    pytest.param(lambda s, _: torch.zeros_like(s), id="zeros_like"),
    pytest.param(lambda s, _: s.unsqueeze(0), id="unsqueeze"),
    pytest.param(lambda s, _: s.norm(), id="norm"),
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operator_on_sparse_operands_must_equal_cpu(device, coo, operation):
    dense = torch.arange(12.0).reshape(3, 4) / 7
    expected = operation(DENSE.to_sparse(), dense)
    got = operation(coo, dense.to(device))
    assert got.device == device
    assert got.layout == expected.layout
    torch.testing.assert_close(got.to_dense().cpu(), expected.to_dense(), rtol=1e-2, atol=1e-2)


def test_inplace_operators_must_change_the_tensor_itself(device, coo):
    assert coo.mul_(2) is coo
    assert torch.equal(coo.to_dense().cpu(), DENSE * 2)
    coo.add_(torch.ones(3, 4, device=device).to_sparse())
    assert torch.equal(coo.to_dense().cpu(), DENSE * 2 + 1)
    coo.zero_()
    assert (coo._nnz(), coo.shape) == (0, (3, 4))


def test_a_resize_must_reach_sizes_and_dimensions(device):
    there = torch.sparse_coo_tensor(size=(2, 2), device=device)
    there.sparse_resize_((4, 5, 6), 2, 1)
    assert (there.shape, there.sparse_dim(), there.dense_dim()) == ((4, 5, 6), 2, 1)
    assert there._values().shape == (0, 6)


def test_copy_must_work_in_every_direction(device, coo):
    other = torch.zeros(3, 4, device=device).to_sparse()
    other.copy_(coo)
    assert torch.equal(other.to_dense().cpu(), DENSE)
    here = torch.zeros(3, 4).to_sparse()
    here.copy_(coo)
    assert torch.equal(here.to_dense(), DENSE)
    other.zero_().copy_(DENSE.to_sparse())
    assert torch.equal(other.to_dense().cpu(), DENSE)


def test_out_must_be_written(device, coo):
    out = torch.zeros(3, 4, device=device).to_sparse()
    assert torch.add(coo, coo, out=out) is out
    assert torch.equal(out.to_dense().cpu(), DENSE * 2)


def test_gradients_must_flow_through_sparse_products(device, coo):
    weight = torch.ones(4, 2, device=device, requires_grad=True)
    torch.sparse.mm(coo, weight).sum().backward()
    assert torch.equal(weight.grad.cpu(), DENSE.sum(0)[:, None].expand(4, 2))
    dense = DENSE.to(device).requires_grad_()
    (dense.to_sparse() * 2).to_dense().sum().backward()
    assert torch.equal(dense.grad.to_dense().cpu()[DENSE != 0], torch.full((4,), 2.0))
    left = coo.detach().requires_grad_()
    torch.sparse.mm(left, weight.detach()).sum().backward()
    assert left.grad.device == device


@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(lambda p: torch.optim.SGD(p, lr=0.5), id="SGD"),
        pytest.param(lambda p: torch.optim.SparseAdam(p, lr=0.1), id="SparseAdam"),
        pytest.param(lambda p: torch.optim.Adagrad(p, lr=0.1), id="Adagrad"),
    ],
)
def test_sparse_embeddings_must_train_as_on_cpu(device, optimizer):
    weights = []
    for where in ("cpu", device):
        torch.manual_seed(7)
        layer = torch.nn.Embedding(10, 4, sparse=True).to(where)
        steps = optimizer(list(layer.parameters()))
        for _ in range(3):
            steps.zero_grad()
            layer(torch.tensor([1, 3, 3, 9]).to(where)).pow(2).sum().backward()
            assert layer.weight.grad.is_sparse
            assert layer.weight.grad.device.type == torch.device(where).type
            steps.step()
        weights.append(layer.weight.detach().cpu())
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-4, atol=1e-5)


def test_sparse_tensors_must_be_saved_loaded_and_shown(device, coo):
    buffer = io.BytesIO()
    torch.save(coo, buffer)
    for where in (None, "cpu", device):
        buffer.seek(0)
        loaded = torch.load(buffer, map_location=where)
        assert loaded.device.type == (torch.device(where).type if where else device.type)
        assert torch.equal(loaded.to_dense().cpu(), DENSE)
    shown = repr(coo)
    assert f"device='{device}'" in shown
    assert "layout=torch.sparse_coo" in shown


def test_a_wrong_index_must_be_refused_with_nothing_changed(device):
    with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
        torch.sparse_coo_tensor(
            torch.tensor([[5]], device=device), torch.ones(1, device=device), (2,), check_invariants=True
        )


def test_an_operator_without_a_sparse_kernel_must_be_refused_in_pytorchs_words(coo):
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.linalg.qr(coo)
    assert torch.equal(coo.to_dense().cpu(), DENSE)


def test_threads_must_share_a_sparse_tensor(device, coo):
    weight = torch.ones(4, 2, device=device)

    def work(_):
        return [torch.mm(coo, weight).cpu() for _ in range(30)]

    with ThreadPoolExecutor(4) as pool:
        results = [result for results in pool.map(work, range(4)) for result in results]
    assert all(torch.equal(result, DENSE.sum(1)[:, None].expand(3, 2)) for result in results)
