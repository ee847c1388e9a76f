"""Complex tensors: lazy conjugation and negation stay lazy and come out right."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.device

VALUES = torch.complex(torch.arange(6.0) - 2, torch.arange(6.0).flip(0) + 1).reshape(2, 3)
CALLS = [
    pytest.param(lambda x: x.conj(), id="conj"),
    pytest.param(lambda x: x.conj() + x, id="conj-add"),
    pytest.param(lambda x: x.conj().imag, id="imag-of-conj"),
    pytest.param(lambda x: -x.conj().imag, id="neg-of-imag-of-conj"),
    pytest.param(lambda x: x.conj().clone(), id="clone"),
    pytest.param(lambda x: x.conj().resolve_conj(), id="resolve_conj"),
    pytest.param(lambda x: x.conj().imag.resolve_neg(), id="resolve_neg"),
    pytest.param(lambda x: x @ x.mH, id="mm-adjoint"),
    pytest.param(lambda x: x.conj() @ x.t(), id="mm-conj"),
    pytest.param(lambda x: torch.vdot(x[0], x[1]), id="vdot"),
    pytest.param(lambda x: x.conj().abs(), id="abs"),
    pytest.param(torch.angle, id="angle"),
    pytest.param(torch.view_as_real, id="view_as_real"),
    pytest.param(lambda x: torch.view_as_complex(torch.view_as_real(x).clone()), id="view_as_complex"),
    pytest.param(lambda x: x.real + x.imag, id="real-imag"),
    pytest.param(lambda x: x.conj().sum(0), id="sum"),
    pytest.param(lambda x: torch.cat([x.conj(), x]), id="cat"),
    pytest.param(lambda x: x.conj()[:, 1:], id="slice"),
    pytest.param(lambda x: x.conj().t().contiguous(), id="contiguous"),
    pytest.param(lambda x: torch.polar(x.abs(), x.angle()), id="polar"),
    pytest.param(lambda x: x.conj().to(torch.complex128), id="to-complex128"),
]


@pytest.mark.parametrize("call", CALLS)
def test_complex_operator_must_equal_cpu(assert_same, device, call):
    got, expected = call(VALUES.to(device)), call(VALUES)
    assert got.is_conj() == expected.is_conj()
    assert got.is_neg() == expected.is_neg()
    assert_same(got.resolve_conj().resolve_neg(), expected.resolve_conj().resolve_neg())


def test_conjugate_must_be_a_view_with_its_bit_set(device):
    base = VALUES.to(device)
    view = base.conj()
    assert view.is_conj()
    assert view.data_ptr() == base.data_ptr()
    assert not view.conj().is_conj()
    base[0, 0] = 7 + 5j
    assert view[0, 0].item() == 7 - 5j


def test_write_through_a_conjugate_must_store_the_conjugate(device):
    base = VALUES.to(device)
    base.conj()[0] = torch.tensor([1 + 1j, 2 + 2j, 3 + 3j])
    assert base[0].tolist() == [1 - 1j, 2 - 2j, 3 - 3j]


def test_write_through_a_negated_view_must_store_the_negative(device):
    base = VALUES.to(device)
    imaginary = base.conj().imag
    assert imaginary.is_neg()
    imaginary.fill_(4)
    assert torch.equal(base.imag.cpu(), torch.full((2, 3), -4.0))


def test_conjugate_must_cross_to_the_host_and_back(device):
    expected = VALUES.conj().resolve_conj()
    assert torch.equal(VALUES.to(device).conj().cpu().resolve_conj(), expected)
    assert torch.equal(VALUES.conj().to(device).cpu().resolve_conj(), expected)
    assert VALUES.to(device).conj().tolist() == expected.tolist()
    assert VALUES.to(device).conj()[1, 2].item() == expected[1, 2].item()


def test_in_place_on_a_conjugate_must_equal_cpu(agree):
    def change(x):
        x.conj().mul_(2 + 1j)
        x.imag.add_(1)
        return x.clone()

    agree(change, VALUES)


def test_complex_gradient_must_equal_cpu(agree):
    def gradient(x):
        return torch.autograd.grad((x.conj() * x * (1 + 2j)).abs().sum(), x)[0]

    agree(gradient, VALUES.clone().requires_grad_())


@pytest.mark.parametrize("call", [torch.fft.fft, torch.fft.ifft, torch.fft.fft2], ids=["fft", "ifft", "fft2"])
def test_fourier_transform_must_equal_cpu(agree, call):
    agree(call, torch.complex(torch.randn(4, 8), torch.randn(4, 8)))


def test_real_fourier_transform_must_equal_cpu_and_invert(agree):
    agree(lambda x: (torch.fft.rfft(x), torch.fft.irfft(torch.fft.rfft(x), n=8)), torch.randn(3, 8))
