"""Composites without a kernel of flagos come apart as they do for any device, for whoever watches or takes part."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from torch.nn import functional
from torch.profiler import ExecutionTraceObserver

pytestmark = pytest.mark.device


def _layer_norm(x):
    return functional.layer_norm(x, x.shape[-1:])


def _group_norm(x):
    return functional.group_norm(x, 1)


@pytest.mark.parametrize("key", ["PrivateUse1", "AutogradPrivateUse1"])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad], ids=lambda mode: mode.__name__)
def test_a_kernel_of_the_users_must_run_within_a_composite(to_device, integers, key, mode):
    def kernel(x, _shape, _weight, _bias, _eps):
        called.append(key)
        return x + 1, x.mean(-1), x.mean(-1)

    called: list[str] = []
    x = to_device(integers(2, 3))
    # Kernels stay until the library goes, for which there is no other name.
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library.impl("native_layer_norm", kernel, key)
        with mode():
            got = _layer_norm(x)
    finally:
        library._destroy()
    assert called == [key]
    assert torch.equal(got, x + 1)


def test_observers_must_see_results_on_flagos(to_device, integers, tmp_path):
    x, trace = to_device(integers(2, 3)), tmp_path / "trace.json"
    observer = ExecutionTraceObserver().register_callback(str(trace))
    observer.start()
    with torch.no_grad():
        _layer_norm(x)
    observer.stop()
    observer.unregister_callback()
    nodes = json.loads(trace.read_text())["nodes"]
    (outputs,) = [node["outputs"]["values"] for node in nodes if node["name"] == "aten::native_layer_norm"]
    assert [value[-1] for value in outputs] == [str(x.device)] * 3


@pytest.mark.parametrize(
    ("norm", "operator"),
    [
        pytest.param(_layer_norm, torch.ops.aten.native_layer_norm.default, id="layer_norm"),
        pytest.param(_group_norm, torch.ops.aten.native_group_norm.default, id="group_norm"),
    ],
)
def test_an_exported_program_must_come_down_to_the_core_operator(to_device, integers, norm, operator):
    class Module(torch.nn.Module):  # type: ignore[misc]  # torch is untyped where the type checker runs
        def forward(self, x):
            return norm(x)

    program = torch.export.export(Module(), (to_device(integers(2, 3)),)).run_decompositions()
    assert operator in [node.target for node in program.graph.nodes]
