"""Routing: which kernel an operator gets, as FLAGOS_BACKEND_CONFIG, FLAGOS_OP_<name> and FLAGOS_LOG ask for."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from textwrap import dedent

import pytest

from torch_fl._C import _build_options

SECONDS = 300
PYTHON_OPERATORS = bool(_build_options()["flaggems_python"])
needs_python_operators = pytest.mark.skipif(
    not PYTHON_OPERATORS, reason="this wheel was built with FLAGGEMS_KERNEL=OFF: it has no Python operators"
)
needs_none = pytest.mark.skipif(PYTHON_OPERATORS, reason="this wheel was built with FLAGGEMS_KERNEL=ON")
START = "import torch_fl, torch\ndevice = 'flagos'\n"
MINE = """
import torch

seen = []


def add(self, other, *, alpha=1):
    seen.append((type(self).__name__, type(other).__name__, alpha))
    return torch.sub(self, other, alpha=-alpha)


def add_(self, other, *, alpha=1):
    torch.sub(self, other, alpha=-alpha, out=self)


def add_out(self, other, *, alpha=1, out):
    return torch.sub(self, other, alpha=-alpha, out=out)


def mul(self, other):
    seen.append("mul")
    return torch.mul(self, other)


def wrong(self, other):
    return self.clone()


def device(self):
    seen.append(torch.flagos.current_device())
    return torch.clone(self)


def ones(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    seen.append(str(device))
    return torch.empty(size, dtype=dtype, device=device)


def number(self, other, *, alpha=1):
    seen.append(other.device.type if isinstance(other, torch.Tensor) else other)
    return torch.sub(self, other, alpha=-alpha)


def fails(self):
    raise KeyError("from the callable")


def maximum(self, dim, keepdim=False):
    return self.amax(dim, keepdim), self.argmax(dim, keepdim)


not_callable = 3
"""


@pytest.fixture
def route(tmp_path):
    """`route(program, conf=..., **variables)`: run a program with routing asked for; its stdout and stderr."""
    (tmp_path / "mine.py").write_text(MINE)

    def run(program, *, conf=None, fails=False, **variables):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FLAGOS_OP_")}
        environment |= {"PYTHONPATH": str(tmp_path), "FLAGOS_LOG": "", "FLAGOS_BACKEND_CONFIG": "", **variables}
        if conf is not None:
            (tmp_path / "routes.conf").write_text(dedent(conf))
            environment["FLAGOS_BACKEND_CONFIG"] = str(tmp_path / "routes.conf")
        done = subprocess.run(
            [sys.executable, "-c", START + dedent(program)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert (done.returncode != 0) == fails, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout, done.stderr

    return run


def dispatches(stderr):
    """Return the log's lines as pairs of operator and target; any other line is a failure."""
    lines = stderr.splitlines()
    assert all(line.startswith("[flagos dispatch] ") for line in lines), stderr
    return [tuple(line.removeprefix("[flagos dispatch] ").split(" -> ")) for line in lines]


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
        pytest.param({"FLAGOS_LOG": "dispach"}, "FLAGOS_LOG holds dispach; known is: dispatch", id="word"),
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


@needs_none
def test_a_wheel_without_python_operators_must_refuse_them(route):
    _, stderr = route("", conf="mm = flagos_python mine:mul", fails=True)
    assert (
        "mm = flagos_python, but this wheel was built without Python operators; "
        "expected a wheel built with FLAGGEMS_KERNEL=ON"
    ) in stderr


@needs_python_operators
@pytest.mark.parametrize(
    ("target", "found"),
    [
        pytest.param("gone:add", "module gone cannot be imported: No module named 'gone'", id="no-module"),
        pytest.param("mine:gone", "module mine has no 'gone'; expected a callable mine:gone", id="no-attribute"),
        pytest.param("mine:seen.gone", "module mine has no 'seen.gone'", id="no-inner-attribute"),
        pytest.param("mine:not_callable", "mine:not_callable is of type int; expected a callable", id="no-callable"),
        pytest.param("broken:add", "module broken fails at import: ValueError: by itself", id="broken-module"),
        pytest.param("", "module flag_gems cannot be imported: No module named 'flag_gems'", id="no-flaggems"),
    ],
)
def test_a_callable_that_does_not_exist_must_be_an_error_at_load(route, tmp_path, target, found):
    (tmp_path / "broken.py").write_text("raise ValueError('by itself')\n")
    if not target and find_spec("flag_gems"):
        pytest.skip("FlagGems is installed here")
    _, stderr = route("", conf=f"\nadd.Tensor = flagos_python {target}\n", fails=True)
    assert f"{tmp_path / 'routes.conf'}:2: {found}" in stderr


@needs_python_operators
@pytest.mark.device
def test_a_python_route_must_be_called_with_gradient(route):
    program = """
        import mine
        x = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
        y = torch.tensor([3.0, 4.0], device=device, requires_grad=True)
        z = torch.add(x, y, alpha=2)
        assert z.tolist() == [7, 10] and z.grad_fn.name() == "AddBackward0"
        z.sum().backward()
        assert x.grad.tolist() == [1, 1] and y.grad.tolist() == [2, 2]
        assert mine.seen == [("Tensor", "Tensor", 2)]
    """
    stdout, stderr = route(program, conf="add.Tensor = flagos_python mine:add", FLAGOS_LOG="dispatch")
    assert stdout == ""
    assert ("add.Tensor", "flagos_python") in dispatches(stderr)
    assert ("sub.Tensor", "cuda") in dispatches(stderr)


@needs_python_operators
@pytest.mark.device
def test_a_python_route_of_inplace_and_out_forms_must_return_the_tensor_written_to(route):
    program = """
        x = torch.ones(2, device=device)
        version = x._version
        assert x.add_(2) is x and x._version > version and x.tolist() == [3, 3]
        with torch.inference_mode():
            y = torch.ones(2, device=device)
            assert y.add_(1) is y and y.tolist() == [2, 2]
        out = torch.empty(2, device=device)
        assert torch.add(x, x, out=out) is out and out.tolist() == [6, 6]
    """
    conf = "add_.Tensor = flagos_python mine:add_\nadd.out = flagos_python mine:add_out\n"
    assert route(program, conf=conf) == ("", "")


@needs_python_operators
@pytest.mark.device
def test_a_python_route_that_returns_another_tensor_than_it_should_write_must_be_refused(route):
    program = """
        x = torch.ones(2, device=device)
        try:
            with torch.inference_mode():
                x.mul_(x)
        except TypeError as err:
            print(err)
    """
    stdout, _ = route(program, conf="mul_.Tensor = flagos_python mine:wrong")
    assert "the Python kernel of aten::mul_.Tensor must write to 'self' and return it or None, got" in stdout


@needs_python_operators
@pytest.mark.device
def test_a_python_route_that_calls_its_operator_must_reach_the_vendors_kernel(route):
    program = """
        import mine
        x = torch.ones(2, device=device)
        assert (x * 3).tolist() == [3, 3] and mine.seen == ["mul"]
        assert (x * x).tolist() == [1, 1] and mine.seen == ["mul"] * 2
    """
    assert route(program, conf="mul.Tensor = flagos_python mine:mul") == ("", "")


@needs_python_operators
@pytest.mark.device
def test_numbers_must_reach_a_python_route_as_numbers_and_cpu_scalars_on_the_device(route):
    program = """
        import mine
        x = torch.ones(2, device=device)
        assert (x + 2.5).tolist() == [3.5, 3.5] and (x + torch.tensor(2)).dtype == torch.float32
        assert mine.seen == [2.5, "flagos"]
    """
    assert route(program, conf="add.Tensor = flagos_python mine:number") == ("", "")


@needs_python_operators
@pytest.mark.device
def test_a_python_route_must_run_on_its_operands_device(route):
    program = """
        import mine
        last = torch.flagos.device_count() - 1
        torch.neg(torch.ones(2, device=f"flagos:{last}"))
        assert mine.seen == [last] and torch.flagos.current_device() == 0
    """
    assert route(program, conf="neg = flagos_python mine:device") == ("", "")


@needs_python_operators
@pytest.mark.device
def test_a_python_route_of_a_factory_must_be_given_a_device_with_its_index(route):
    program = """
        import mine
        assert torch.empty(2, device="flagos").device == torch.device("flagos:0")
        assert "flagos:0" in mine.seen
    """
    assert route(program, conf="empty.memory_format = flagos_python mine:ones") == ("", "")


@needs_python_operators
@pytest.mark.device
def test_a_python_route_of_several_results_must_give_each(route):
    program = """
        x = torch.tensor([[1.0, 5.0], [7.0, 2.0]], device=device)
        values, indices = x.max(1)
        assert values.tolist() == [5, 7] and indices.tolist() == [1, 0]
    """
    assert route(program, conf="max.dim = flagos_python mine:maximum") == ("", "")


@needs_python_operators
@pytest.mark.device
def test_an_exception_of_a_python_route_must_reach_the_caller_and_leave_the_route_usable(route):
    program = """
        x = torch.ones(2, device=device)
        for _ in range(2):
            try:
                torch.neg(x)
            except KeyError as err:
                assert err.args == ("from the callable",)
            else:
                raise SystemExit("no exception")
    """
    assert route(program, conf="neg = flagos_python mine:fails") == ("", "")


@pytest.fixture
def gems(tmp_path):
    """A package that looks like FlagGems to the lookup, with the file names given."""

    def make(listed):
        package = tmp_path / "flag_gems"
        (package / "ops").mkdir(parents=True)
        operators = (
            "import torch\ndef add(a, b, *, alpha=1):\n    print('gems add')\n    return torch.add(a, b, alpha=alpha)\n"
        )
        operators += "def sum_dim(a, dim, keepdim=False, *, dtype=None):\n    print('gems sum_dim')\n"
        operators += "    return torch.sum(a, dim, keepdim, dtype=dtype)\n"
        (package / "ops" / "__init__.py").write_text(operators)
        (package / "__init__.py").write_text(listed)

    return make


@needs_python_operators
@pytest.mark.device
@pytest.mark.parametrize(
    "listed",
    [
        pytest.param("", id="by-name"),
        pytest.param(
            "from flag_gems.ops import add, sum_dim\n"
            "_FULL_CONFIG = (('add.Tensor', add), ('sum.dim_IntList', sum_dim, 'extra'))\n",
            id="by-its-own-list",
        ),
    ],
)
def test_a_python_route_without_callable_must_find_flaggems_own(route, gems, listed):
    gems(listed)
    program = """
        x = torch.ones(2, 2, device=device)
        assert torch.add(x, x).tolist() == [[2, 2], [2, 2]]
        assert x.sum(1).tolist() == [2, 2]
    """
    conf = "add.Tensor = flaggems_python\nsum.dim_IntList = flagos_python\n"
    assert route(program, conf=conf) == ("gems add\ngems sum_dim\n", "")


@needs_python_operators
def test_an_operator_that_flaggems_lacks_must_be_an_error_at_load(route, gems):
    gems("")
    _, stderr = route("", conf="mm = flagos_python", fails=True)
    assert "flag_gems has no operator for mm; expected flag_gems.ops.mm, or a callable of yours" in stderr
