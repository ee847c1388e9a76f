"""Indexing: reading and writing, with indices on either side and of every accepted type."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.device

BASE = torch.arange(60.0).reshape(3, 4, 5)
READS = [
    pytest.param(lambda x: x[1], id="int"),
    pytest.param(lambda x: x[-1, 2:], id="negative"),
    pytest.param(lambda x: x[..., None, 1], id="ellipsis-none"),
    pytest.param(lambda x: x[::2, 1::2, ::3], id="steps"),
    pytest.param(lambda x: x[True], id="true"),
    pytest.param(lambda x: x[[0, 2]], id="list"),
    pytest.param(lambda x: x[[0, 2], [1, 3]], id="lists"),
    pytest.param(lambda x: x[[0, 2], :, [1, 3]], id="lists-apart"),
    pytest.param(lambda x: x[x > 30], id="mask"),
    pytest.param(lambda x: x[:, x[0, :, 0] > 5], id="mask-of-a-dimension"),
    pytest.param(lambda x: x[x < 0], id="mask-of-none"),
]


@pytest.mark.parametrize("read", READS)
def test_reading_must_equal_cpu(agree, read):
    agree(read, BASE, exact=True)


INDICES = [
    pytest.param(torch.tensor([2, 0, 2]), id="int64"),
    pytest.param(torch.tensor([2, 0, 2], dtype=torch.int32), id="int32"),
    pytest.param(torch.tensor([True, False, True]), id="bool"),
    pytest.param(torch.tensor([-1, 0, -1]), id="negative"),
    pytest.param(torch.tensor(2), id="0-dim"),
    pytest.param(torch.tensor([], dtype=torch.int64), id="empty"),
]


@pytest.mark.parametrize("place", ["cpu", "flagos"])
@pytest.mark.parametrize("index", INDICES)
def test_index_of_any_type_on_either_side_must_read_and_write(device, index, place):
    expected = torch.arange(12.0).reshape(3, 4)
    there, moved = expected.to(device), index.to(device) if place == "flagos" else index
    assert torch.equal(there[moved].cpu(), expected[index])
    for tensor, rows in ((there, moved), (expected, index)):
        tensor[rows] = -1.0
        tensor[rows] += 10
    assert torch.equal(there.cpu(), expected)


WRITES = [
    pytest.param(lambda x: x.__setitem__(1, 7), id="int"),
    pytest.param(lambda x: x.__setitem__((slice(None), 2), torch.zeros(5, device=x.device)), id="column"),
    pytest.param(lambda x: x.__setitem__(x > 30, 0), id="mask"),
    pytest.param(lambda x: x.__setitem__(x > 55, x.new_tensor([1.0, 2, 3, 4])), id="mask-values"),
    pytest.param(lambda x: x.__setitem__(([0, 2], [1, 3]), 7), id="lists"),
    pytest.param(lambda x: x.__setitem__(..., 3), id="ellipsis"),
    pytest.param(lambda x: x[1].__setitem__([0, 2], x[0, :2].clone()), id="through-a-view"),
    pytest.param(lambda x: x.index_fill_(1, torch.tensor([0, 3], device=x.device), 9), id="index_fill_"),
    pytest.param(
        lambda x: x.index_copy_(0, torch.tensor([2, 0], device=x.device), torch.zeros(2, 4, 5, device=x.device)),
        id="index_copy_",
    ),
    pytest.param(
        lambda x: x.index_add_(0, torch.tensor([1, 1], device=x.device), torch.ones(2, 4, 5, device=x.device)),
        id="index_add_",
    ),
    pytest.param(
        lambda x: x.scatter_(1, torch.zeros(3, 1, 5, dtype=torch.int64, device=x.device), x[:, 3:].clone()),
        id="scatter_",
    ),
    pytest.param(
        lambda x: x.scatter_add_(2, torch.ones(3, 4, 2, dtype=torch.int64, device=x.device), x[..., :2].clone()),
        id="scatter_add_",
    ),
    pytest.param(
        lambda x: x.scatter_reduce_(
            0, torch.zeros(3, 4, 5, dtype=torch.int64, device=x.device), x.clone(), reduce="amax"
        ),
        id="scatter_reduce_",
    ),
    pytest.param(
        lambda x: x.index_put_((torch.tensor([1, 1], device=x.device),), x.new_tensor(2.0), accumulate=True),
        id="index_put_-accumulate",
    ),
    pytest.param(lambda x: x.masked_scatter_(x > 50, torch.zeros(9, device=x.device)), id="masked_scatter_"),
    pytest.param(lambda x: x.put_(torch.tensor([0, 59], device=x.device), x.new_tensor([5.0, 6.0])), id="put_"),
]


@pytest.mark.parametrize("write", WRITES)
def test_writing_must_equal_cpu(agree, write):
    def whole(x):
        write(x)
        return x

    agree(whole, BASE, exact=True)


def test_mixed_cpu_and_device_indices_must_work_together(device):
    there = BASE.to(device)
    rows, columns = torch.tensor([0, 2]), torch.tensor([1, 3], device=device)
    assert torch.equal(there[rows, columns].cpu(), BASE[[0, 2], [1, 3]])
    there[rows, columns] = 0
    assert int((there == 0).sum()) == 11


def test_value_on_the_cpu_must_be_accepted_only_as_a_scalar(device):
    there = BASE.to(device)
    there[0, 0, 0] = torch.tensor(5.0)
    assert there[0, 0, 0].item() == 5
    there[0, 0] = torch.arange(5.0)
    assert there[0, 0].tolist() == [0, 1, 2, 3, 4]


def test_device_index_of_a_cpu_tensor_must_be_refused(device):
    with pytest.raises(RuntimeError, match="indices should be either on cpu"):
        BASE[torch.tensor([0], device=device)]


GATHERS = [
    pytest.param(lambda x, i: x.index_select(1, i), id="index_select"),
    pytest.param(lambda x, i: x.gather(2, i.expand(3, 4, -1)), id="gather"),
    pytest.param(lambda x, i: x.take(i * 7), id="take"),
    pytest.param(lambda x, i: x.take_along_dim(i.reshape(1, 1, -1), 2), id="take_along_dim"),
    pytest.param(lambda x, i: x[:, i], id="advanced"),
    pytest.param(lambda x, i: x[i % 3, i], id="advanced-two"),
    pytest.param(lambda x, i: x.mT.index_select(2, i), id="index_select-transposed"),
]


@pytest.mark.parametrize("gather", GATHERS)
def test_gathering_must_equal_cpu(agree, gather):
    agree(gather, BASE, torch.tensor([3, 0, 1]), exact=True)


@pytest.mark.parametrize("gather", GATHERS)
def test_gradient_of_gathering_must_equal_cpu(agree, gather):
    def gradient(x, i):
        result = gather(x, i)
        slope = torch.arange(float(result.numel()), device=x.device).reshape(result.shape)
        return torch.autograd.grad((result * slope).sum(), x)[0]

    agree(gradient, BASE.clone().requires_grad_(), torch.tensor([3, 0, 1]), exact=True)


def test_too_many_indices_must_raise_as_on_the_cpu(both_raise):
    both_raise(lambda x: x[0, 0, 0, 0], BASE)
    both_raise(lambda x: x[5], BASE)
    both_raise(lambda x: x[torch.ones(4, dtype=torch.bool, device=x.device)], BASE)


def test_index_out_of_range_must_be_an_error_and_not_a_wrong_value(python):
    """On hardware the kernel's assertion may end the process, which is an error too: it gets a process of its own."""
    done = python(
        "import torch_fl, torch\n"
        "x = torch.arange(4.0, device='flagos')\n"
        "y = x[torch.tensor([9], device='flagos')]\n"
        "torch.flagos.synchronize()\n"
        "print('value', y.item())\n"
    )
    assert done.returncode != 0
    assert "value" not in done.stdout
    assert done.stderr, "it must say something"
