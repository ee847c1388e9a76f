"""torch.fft in half precision, which PyTorch's composites allow to devices named CUDA alone."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.device

HALF = {"rtol": 2e-3, "atol": 2e-3}
DIMENSIONS = ("", "2", "n")
FROM_REAL = [f"{name}{suffix}" for name in ("rfft", "ihfft") for suffix in DIMENSIONS]
FROM_COMPLEX = [f"{name}{suffix}" for name in ("fft", "ifft", "irfft", "hfft") for suffix in DIMENSIONS]
TRANSFORMS = [*FROM_REAL, *FROM_COMPLEX]


def whole(*shape):
    """Small whole numbers, which half precision holds exactly."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(5)).float()


def operand(name, device, dtype=torch.float16):
    """A transform's operand, not a power of two long: on the device in half precision, on the CPU in single."""
    real = whole(3, 6).to(device, dtype)
    return torch.complex(real, real.flip(1)) if name in FROM_COMPLEX else real


def rounded(result):
    """A transform's result in single precision, as the half that is expected."""
    return result.to(torch.complex32 if result.is_complex() else torch.float16)


def comparable(result):
    return torch.view_as_real(result.cpu()).float() if result.is_complex() else result.cpu().float()


def assert_rounded(got, single, device):
    expected = rounded(single)
    assert (got.dtype, got.shape, got.device) == (expected.dtype, expected.shape, device)
    torch.testing.assert_close(comparable(got), comparable(expected), **HALF)


@pytest.mark.parametrize("norm", ["forward", "ortho"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform_of_halves_must_be_the_single_one_rounded(device, name, norm):
    transform = getattr(torch.fft, name)
    single = transform(operand(name, "cpu", torch.float32), norm=norm)
    assert_rounded(transform(operand(name, device), norm=norm), single, device)
    with torch.inference_mode():
        assert_rounded(transform(operand(name, device), norm=norm), single, device)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform_of_halves_must_fill_what_it_is_given(device, name):
    transform = getattr(torch.fft, name)
    single = transform(operand(name, "cpu", torch.float32), norm="ortho")
    for given in ([0], [*single.shape]):
        out = torch.empty(given, dtype=rounded(single).dtype, device=device)
        assert transform(operand(name, device), norm="ortho", out=out) is out
        assert_rounded(out, single, device)


@pytest.mark.parametrize("name", ["fft", "rfft", "irfft2"])
def test_transform_of_halves_must_fill_another_precision_too(device, name):
    single = getattr(torch.fft, name)(operand(name, "cpu", torch.float32), norm="ortho")
    out = torch.empty(0, dtype=single.dtype, device=device)
    getattr(torch.fft, name)(operand(name, device), norm="ortho", out=out)
    torch.testing.assert_close(out.cpu(), rounded(single).to(single.dtype), **HALF)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        pytest.param({"dtype": torch.float32}, "expects an out tensor of ComplexHalf", id="real"),
        pytest.param({"dtype": torch.complex32, "device": "cpu"}, "expects an out tensor on flagos", id="on-the-cpu"),
        pytest.param({"dtype": torch.complex64, "requires_grad": True}, "cannot be differentiated", id="gradient"),
    ],
)
def test_transform_of_halves_must_refuse_what_it_cannot_fill(device, out, words):
    given = torch.zeros(3, 6, **{"device": device, **out})
    with pytest.raises(RuntimeError, match=words):
        torch.fft.fft(operand("fft", device), out=given)
    assert not given.detach().any()


def test_transform_of_halves_on_the_cpu_must_stay_the_composites_to_refuse(device):
    with pytest.raises(RuntimeError, match="on the same device"):
        torch.fft.fft(operand("fft", "cpu", torch.float16), out=torch.empty(3, 6, dtype=torch.complex32, device=device))


@pytest.mark.parametrize("name", FROM_REAL)
def test_transform_of_halves_must_be_differentiable(device, name):
    def gradient(leaf):
        leaf.requires_grad_()
        result = getattr(torch.fft, name)(leaf, norm="ortho")
        result = result.to(torch.complex64)
        return torch.autograd.grad((result * result.conj()).real.sum(), leaf)[0]

    assert_rounded(gradient(operand(name, device)), gradient(operand(name, "cpu", torch.float32)), device)


def test_default_of_half_must_hold_for_whole_numbers(device):
    numbers = torch.arange(6)
    single = torch.fft.rfft(numbers.float(), norm="ortho")
    torch.set_default_dtype(torch.float16)
    try:
        got = torch.fft.rfft(numbers.to(device), norm="ortho")
    finally:
        torch.set_default_dtype(torch.float32)
    assert_rounded(got, single, device)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=["bfloat16", "float8"])
def test_other_narrow_types_must_be_refused_as_before(device, dtype):
    with pytest.raises(RuntimeError, match="Unsupported dtype"):
        torch.fft.fft(torch.ones(4).to(dtype).to(device))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform_in_single_precision_must_stay_the_composites(agree, name):
    agree(getattr(torch.fft, name), operand(name, "cpu", torch.float32))
