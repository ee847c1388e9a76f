"""Nested tensors, of both layouts: where the vendor has kernels for them, flagos has them."""

from __future__ import annotations

import io

import pytest
import torch

pytestmark = [
    pytest.mark.device,
    # PyTorch says of both layouts that they are prototypes.
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning"),
]

LAYOUTS = [pytest.param(torch.strided, id="strided"), pytest.param(torch.jagged, id="jagged")]
ROWS = (2, 1, 3)


def pieces(width=4):
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(rows, width, generator=generator) for rows in ROWS]


def nested(layout, where="cpu", **options):
    return torch.nested.nested_tensor(pieces(), layout=layout, device=where, **options)


def padded(tensor):
    return torch.nested.to_padded_tensor(tensor, 0.0).cpu()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_nested_tensor_must_be_made_and_taken_apart(device, layout):
    there = nested(layout, device)
    assert there.is_nested
    assert there.device == device
    assert there.layout is layout
    for piece, expected in zip(there.unbind(), pieces(), strict=True):
        assert piece.device == device
        assert torch.equal(piece.cpu(), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_nested_tensor_must_be_made_of_tensors_of_the_device(device, layout):
    there = torch.nested.as_nested_tensor([piece.to(device) for piece in pieces()], layout=layout)
    assert there.device == device
    assert [piece.shape for piece in there.unbind()] == [piece.shape for piece in pieces()]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_nested_tensor_must_move_between_devices(device, layout):
    there = nested(layout).to(device)
    assert there.device == device
    back = there.cpu()
    assert back.device.type == "cpu"
    assert all(torch.equal(*pair) for pair in zip(back.unbind(), pieces(), strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_padding_must_equal_cpu(device, layout):
    assert torch.equal(padded(nested(layout, device)), padded(nested(layout)))


OPERATIONS = [
    pytest.param(lambda n, _: n + n, id="add"),
    pytest.param(lambda n, _: n * 2, id="mul-scalar"),
    pytest.param(lambda n, _: n * n, id="mul"),
    pytest.param(lambda n, _: n.relu(), id="relu"),
    pytest.param(lambda n, _: torch.nn.functional.gelu(n), id="gelu"),
    pytest.param(lambda n, _: torch.nn.functional.silu(n), id="silu"),
    pytest.param(lambda n, _: torch.softmax(n, -1), id="softmax"),
    pytest.param(lambda n, _: n.clone(), id="clone"),
    pytest.param(torch.nn.functional.linear, id="linear"),
    pytest.param(lambda n, w: torch.nn.functional.layer_norm(n, (4,), w[0], w[1]), id="layer_norm"),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operator_on_a_nested_operand_must_equal_cpu(device, layout, operation):
    weight = torch.arange(24.0).reshape(6, 4) / 24
    expected = operation(nested(layout), weight)
    got = operation(nested(layout, device), weight.to(device))
    assert got.is_nested
    assert got.device == device
    torch.testing.assert_close(padded(got), padded(expected), rtol=1e-2, atol=1e-2)


def test_products_of_nested_tensors_must_equal_cpu(device):
    here, there = nested(torch.strided), nested(torch.strided, device)
    expected = torch.bmm(here, here.transpose(1, 2))
    torch.testing.assert_close(padded(torch.bmm(there, there.transpose(1, 2))), padded(expected), rtol=1e-2, atol=1e-2)


def test_inplace_operators_must_change_the_tensor_itself(device):
    there = nested(torch.strided, device)
    assert there.mul_(2) is there
    assert torch.equal(padded(there), padded(nested(torch.strided)) * 2)


def test_a_piece_must_share_memory_with_the_nested_tensor(device):
    there = nested(torch.strided, device)
    there.unbind()[1].zero_()
    assert there.unbind()[1].abs().sum().item() == 0
    there[2].fill_(3)
    assert torch.equal(there.unbind()[2].cpu(), torch.full((3, 4), 3.0))


def test_values_and_offsets_of_a_jagged_tensor_must_be_on_the_device(device):
    there = nested(torch.jagged, device)
    assert there.values().device == device
    assert there.offsets().tolist() == [0, 2, 3, 6]
    again = torch.nested.nested_tensor_from_jagged(there.values(), there.offsets())
    assert torch.equal(again.values().cpu(), torch.cat(pieces()))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_must_flow_through_nested_tensors(device, layout):
    grads = []
    for where in ("cpu", device):
        leaves = [piece.to(where).requires_grad_() for piece in pieces()]
        weight = (torch.arange(24.0).reshape(6, 4) / 24).to(where).requires_grad_()
        made = torch.nested.as_nested_tensor(leaves, layout=layout)
        torch.nested.to_padded_tensor(torch.nn.functional.linear(made, weight), 0.0).pow(2).sum().backward()
        grads.append([leaf.grad.cpu() for leaf in (*leaves, weight)])
    for got, expected in zip(grads[1], grads[0], strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-2, atol=1e-2)


def test_a_nested_tensor_must_be_saved_loaded_and_shown(device):
    there = nested(torch.strided, device)
    buffer = io.BytesIO()
    torch.save(there, buffer)
    for where in (None, "cpu", device):
        buffer.seek(0)
        loaded = torch.load(buffer, map_location=where, weights_only=False)
        assert loaded.device.type == (torch.device(where).type if where else device.type)
        assert torch.equal(padded(loaded), padded(nested(torch.strided)))
    assert f"device='{device}'" in repr(there)


def test_operands_of_different_shapes_must_be_refused(device):
    there = nested(torch.strided, device)
    other = torch.nested.nested_tensor([torch.ones(1, 4)] * 3, device=device)
    with pytest.raises(RuntimeError, match=r"(?i)nested"):
        _ = there + other
    assert torch.equal(padded(there), padded(nested(torch.strided)))
