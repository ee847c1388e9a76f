"""Routing to Python callables: the user's own and FlagGems'."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

import pytest
from routing_runs import PYTHON_OPERATORS, dispatches, run_routed

needs_python_operators = pytest.mark.skipif(
    not PYTHON_OPERATORS, reason="this wheel was built with FLAGGEMS_KERNEL=OFF: it has no Python operators"
)
needs_none = pytest.mark.skipif(PYTHON_OPERATORS, reason="this wheel was built with FLAGGEMS_KERNEL=ON")


@pytest.fixture
def route(tmp_path):
    """`route(program, conf=..., **variables)`: run a program with routing asked for; its stdout and stderr."""
    return partial(run_routed, tmp_path)


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
