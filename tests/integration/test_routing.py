"""Routing: which kernel an operator gets, as FLAGOS_BACKEND_CONFIG, FLAGOS_OP_<name> and FLAGOS_LOG ask for."""

from __future__ import annotations

from functools import partial
from textwrap import dedent

import pytest
from routing_runs import dispatches, run_routed

pytestmark = pytest.mark.plugin_alone


@pytest.fixture
def route(tmp_path):
    """`route(program, conf=..., **variables)`: run a program with routing asked for; its stdout and stderr."""
    return partial(run_routed, tmp_path)


def test_without_routing_nothing_must_be_routed_or_said(route):
    program = "from torch_fl.flagos import routing; print(routing.routes())"
    assert route(program) == ("{}\n", "")


@pytest.mark.device
def test_a_cpu_route_must_run_there_with_gradient_and_say_so(route):
    program = """
        x = torch.tensor([[0.0, 1.0], [2.0, -3.0]], device=device, requires_grad=True)
        y = x.sigmoid()
        y.sum().backward()
        expected = torch.sigmoid(x.detach().cpu())
        assert y.device == x.device and torch.allclose(y.cpu(), expected)
        assert torch.allclose(x.grad.cpu(), expected * (1 - expected))
    """
    _, stderr = route(program, conf="sigmoid = cpu", FLAGOS_LOG="dispatch")
    assert ("sigmoid", "cpu") in dispatches(stderr)
    assert ("sigmoid_backward", "cuda") in dispatches(stderr)


@pytest.mark.device
def test_a_cpu_route_of_inplace_and_out_forms_must_write_to_the_tensor(route):
    program = """
        x = torch.ones(4, device=device)
        pointer, version = x.data_ptr(), x._version
        assert x.add_(2) is x and x.data_ptr() == pointer and x._version == version + 1
        assert x.tolist() == [3] * 4
        out = torch.empty(0, device=device)
        assert torch.mul(x, x, out=out) is out and out.tolist() == [9] * 4
    """
    assert route(program, conf="add_.Tensor = cpu\nmul.out = cpu") == ("", "")


@pytest.mark.device
def test_a_cpu_route_must_leave_a_conjugated_or_strided_operand_right(route):
    program = """
        x = torch.randn(3, 4, dtype=torch.complex64)
        there = x.to(device)
        assert torch.equal(torch.neg(there.conj().t()).cpu(), torch.neg(x.conj().t()))
        assert torch.equal(torch.neg(there[:, ::2]).cpu(), torch.neg(x[:, ::2]))
    """
    assert route(program, conf="neg = cpu") == ("", "")


@pytest.mark.device
def test_the_later_line_and_the_variable_must_win(route):
    program = """
        from torch_fl.flagos import routing
        print(routing.routes())
        x = torch.ones(2, device=device)
        x.neg(), x.abs()
    """
    conf = "neg = cpu\nabs = cuda\nneg = cuda\n"
    stdout, stderr = route(program, conf=conf, FLAGOS_LOG_DISPATCH="1", FLAGOS_OP_abs="cpu")
    assert stdout == "{'neg': 'cuda', 'abs': 'cpu'}\n"
    found = dispatches(stderr)
    assert ("neg", "cuda") in found
    assert ("abs", "cpu") in found


@pytest.mark.device
def test_an_include_must_be_read_beside_the_file_that_names_it(route, tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "inner.conf").write_text("neg = cpu  # as measured\n")
    _, stderr = route("torch.ones(2, device=device).neg()", conf="include more/inner.conf\n", FLAGOS_LOG="dispatch")
    assert ("neg", "cpu") in dispatches(stderr)


@pytest.mark.device
def test_the_log_must_name_each_kernel_once_in_order(route):
    program = """
        import sys
        x, y = torch.ones(2, 2, device=device), torch.ones(2, 2, device=device)
        torch.flagos.synchronize()
        print("--start", file=sys.stderr, flush=True)
        z = torch.mm(x, y)
        torch.add(z, y, out=x)
        x.mul_(y).view(4)
        print("--end", file=sys.stderr, flush=True)
    """
    _, stderr = route(program, FLAGOS_LOG="dispatch")
    between = stderr.partition("--start\n")[2].partition("--end\n")[0]
    names = [name for name, _ in dispatches(between)]
    assert names == ["mm", "add.out", "mul_.Tensor", "view"]
    assert {target for _, target in dispatches(between)} == {"cuda"}


@pytest.mark.device
def test_the_log_must_not_change_results_or_gradients(route):
    program = """
        torch.manual_seed(3)
        layers = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 1)
        model = torch.nn.Sequential(*layers)
        x = torch.randn(4, 8)
        model(x).sum().backward()
        expected = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model.to(device)(x.to(device)).sum().backward()
        for parameter, grad in zip(model.parameters(), expected):
            torch.testing.assert_close(parameter.grad.cpu(), grad, rtol=1e-2, atol=1e-2)
    """
    _, stderr = route(program, FLAGOS_LOG="dispatch")
    assert {"addmm", "native_layer_norm", "gelu", "native_layer_norm_backward"} <= {
        name for name, _ in dispatches(stderr)
    }


@pytest.mark.device
def test_the_log_must_name_operators_that_fall_back_to_the_cpu(route):
    program = """
        library = torch.library.Library("routing_test", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CPU")
        assert torch.ops.routing_test.twice(torch.ones(2, device=device)).tolist() == [2, 2]
    """
    _, stderr = route(program, FLAGOS_LOG="dispatch")
    assert "[flagos dispatch] routing_test::twice -> cpu\n" in stderr


@pytest.mark.device
def test_a_log_of_threads_must_not_mix_lines(route):
    program = """
        import threading
        x = torch.ones(2, device=device)
        def work():
            for _ in range(200):
                x.neg()
        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """
    _, stderr = route(program, FLAGOS_LOG="dispatch")
    assert dispatches(stderr).count(("neg", "cuda")) == 800


@pytest.mark.parametrize(
    ("variables", "warned"),
    [
        pytest.param({"FLAGOS_LOG": "dispatches"}, "FLAGOS_LOG holds dispatches; known is: dispatch", id="word"),
        pytest.param({"FLAGOS_LOG_DISPATCH": "maybe"}, "FLAGOS_LOG_DISPATCH='maybe'; expected 1 or 0", id="switch"),
    ],
)
def test_an_unknown_log_setting_must_be_said_and_change_nothing(route, variables, warned):
    _, stderr = route("", **variables)
    assert f"RoutingWarning: {warned}" in stderr
    assert "[flagos dispatch]" not in stderr


@pytest.mark.parametrize(
    "value", [pytest.param("0", id="zero"), pytest.param("off", id="off"), pytest.param("", id="empty")]
)
def test_a_log_switched_off_must_say_nothing(route, value):
    assert route("torch.ones(2)", FLAGOS_LOG_DISPATCH=value) == ("", "")


def test_everything_wrong_must_be_one_error_at_load(route, tmp_path):
    conf = """\
        nope = cpu
        mm = tpu
        add = cpu
        view = cpu
        linear = cpu
        copy_ = cpu
        include gone.conf
    """
    _, stderr = route("", conf=conf, fails=True, FLAGOS_OP_relu="gpu", FLAGOS_OP_nope__Tensor="cpu")
    error = stderr.partition("RoutingError: ")[2]
    path = tmp_path / "routes.conf"
    for line in (
        f"{path}:1: operator 'nope', which torch does not have; expected ",
        f"{path}:2: target 'tpu' for mm; expected one of cuda, flagos_python, cpu",
        f"{path}:3: operator 'add', which torch does not have; expected one overload as the schema writes it",
        f"{path}:4: view = cpu, but its result shares its argument's memory",
        f"{path}:5: linear = cpu, but it is made of other operators",
        f"{path}:6: copy_ = cpu, but tensors reach the CPU by it; expected cuda",
        f"{path}:7: cannot read {tmp_path / 'gone.conf'}: No such file or directory",
        "environment variable FLAGOS_OP_relu: target 'gpu' for relu",
        "environment variable FLAGOS_OP_nope__Tensor: operator 'nope.Tensor', which torch does not have",
    ):
        assert f"\n  {line}" in error
    assert error.splitlines()[-1].startswith("hint: ")
    assert stderr.count("RoutingError: ") == 1


def test_a_refused_routing_must_be_an_import_error_of_the_package(python):
    program = """
        import os
        os.environ["FLAGOS_OP_mm"] = "tpu"
        try:
            import torch_fl
        except ImportError as err:
            assert type(err).__name__ == "RoutingError", err
        import torch
        assert torch.ones(2).sum() == 2
    """
    done = python(dedent(program))
    assert done.returncode == 0, done.stderr
