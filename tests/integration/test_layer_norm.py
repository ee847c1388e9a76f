"""layer_norm keeps one of three results: where nothing is differentiated, the others never become flagos'."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

pytestmark = pytest.mark.device

NATIVE = torch.ops.aten.native_layer_norm.default


@pytest.fixture
def operands(integers):
    return integers(5, 3), integers(3), integers(3)


def _norm(x, weight, bias):
    return functional.layer_norm(x, (3,), weight, bias)


def _devices(values):
    return {str(value.device.type) for value in values}


@pytest.mark.parametrize("under", [torch.no_grad, torch.inference_mode, torch.enable_grad], ids=lambda u: u.__name__)
def test_result_must_equal_the_cpu(agree, operands, under):
    with under():
        got = agree(_norm, *operands)
        assert _devices([got, got.untyped_storage()]) == {"flagos"}
        agree(lambda x, *_: functional.layer_norm(x, (5, 3)), *operands)


def test_gradients_must_be_recorded_where_one_operand_wants_them(agree, operands):
    for wanted in range(3):
        given = [value.clone().requires_grad_(index == wanted) for index, value in enumerate(operands)]
        agree(lambda *all_, wanted=wanted: torch.autograd.grad(_norm(*all_).square().sum(), all_[wanted]), *given)


def test_tangents_must_follow_without_gradients(agree, operands):
    def tangent(x, weight, bias):
        with torch.no_grad(), forward_ad.dual_level():
            return forward_ad.unpack_dual(_norm(forward_ad.make_dual(x, x + 1), weight, bias))

    agree(tangent, *operands)


def test_all_results_must_be_flagos_for_who_calls_the_operator_itself(to_device, operands):
    given = [to_device(value) for value in operands]
    with torch.no_grad():
        _norm(*given)
        assert _devices(NATIVE(given[0], (3,), *given[1:], 1e-5)) == {"flagos"}
        with pytest.raises(RuntimeError, match="weight"):
            _norm(given[0], given[1][:2], given[2])
        assert _devices(NATIVE(given[0], (3,), *given[1:], 1e-5)) == {"flagos"}


def test_a_mode_must_see_all_results(to_device, operands):
    class Mode(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped where the type checker runs
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if func is NATIVE:
                seen.append(_devices(result))
            return result

    seen: list[set[str]] = []
    with torch.no_grad(), Mode():
        _norm(*map(to_device, operands))
    assert seen == [{"flagos"}]


def test_a_kernel_of_the_users_must_run_and_get_all_results(to_device, operands):
    def kernel(x, _shape, weight, bias, _eps):
        calls.append(x.device.type)
        mean = x.mean(-1, keepdim=True)
        return (x - mean) * weight + bias, mean, torch.ones_like(mean)

    calls: list[str] = []
    x, weight, bias = map(to_device, operands)
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library.impl("native_layer_norm", kernel, "PrivateUse1")
        with torch.no_grad():
            got = _norm(x, weight, bias)
    finally:
        library._destroy()
    assert calls == ["flagos"]
    torch.testing.assert_close(got, (x - x.mean(-1, keepdim=True)) * weight + bias)


def test_the_profiler_must_show_both_operators(to_device, operands):
    given = [to_device(value) for value in operands]
    with torch.no_grad(), torch.profiler.profile() as profile:
        _norm(*given)
    assert {"aten::layer_norm", "aten::native_layer_norm"} <= {event.name for event in profile.events()}
