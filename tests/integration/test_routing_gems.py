"""Routing to FlagGems: its operators get the vendor's own tensors. Here a stand-in takes its place."""

from __future__ import annotations

import gems_like
import pytest
import torch
from routing_runs import PYTHON_OPERATORS, dispatches, run_routed

pytestmark = pytest.mark.skipif(
    not PYTHON_OPERATORS, reason="this wheel was built with FLAGGEMS_KERNEL=OFF: it has no Python operators"
)


@pytest.fixture
def route(tmp_path):
    """`route(program, *operators, **variables)`: run a program with operators routed to the stand-in; its output."""
    gems_like.write(tmp_path)

    def run(program, *operators, **variables):
        conf = "".join(f"{operator} = flagos_python\n" for operator in operators)
        return run_routed(tmp_path, "from flag_gems import ops\n" + program, conf=conf, **variables)

    # The program's own lines are dedented alone.
    return lambda program, *operators, **variables: run(_plain(program), *operators, **variables)


def _plain(program):
    lines = program.strip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] for line in lines)


@pytest.mark.device
def test_gems_operators_must_get_vendor_tensors_and_give_flagos_ones_with_gradient(route):
    program = """
        x = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
        y = torch.tensor([3.0, 4.0], device=device, requires_grad=True)
        z = torch.add(x, y, alpha=2)
        assert z.device == x.device and z.tolist() == [7, 10] and z.grad_fn.name() == "AddBackward0"
        z.sum().backward()
        assert x.grad.tolist() == [1, 1] and y.grad.tolist() == [2, 2]
        assert ops.seen == [("Tensor", 2)], ops.seen
    """
    stdout, stderr = route(program, "add.Tensor", FLAGOS_LOG="dispatch")
    assert stdout == ""
    assert dispatches(stderr).count(("add.Tensor", "flagos_python")) == 1


@pytest.mark.device
@pytest.mark.parametrize("operator", [pytest.param("add_", id="none"), pytest.param("mul_", id="operand")])
def test_gems_inplace_operators_must_give_the_original_back(route, operator):
    program = f"""
        x = torch.full((2, 3), 2.0, device=device)[:, ::2]
        pointer, version = x.data_ptr(), x._version
        assert x.{operator}(torch.full((2, 2), 2.0, device=device)) is x
        assert x.data_ptr() == pointer and x._version == version + 1 and x.tolist() == [[4, 4], [4, 4]]
        with torch.inference_mode():
            y = torch.full((2,), 2.0, device=device)
            assert y.{operator}(y) is y and y.tolist() == [4, 4]
    """
    assert route(program, "add_.Tensor", "mul_.Tensor") == ("", "")


@pytest.mark.device
def test_a_gems_out_operator_must_write_and_resize_the_original(route):
    program = """
        x, out = torch.ones(2, 3, device=device), torch.empty(0, device=device)
        assert torch.add(x, x, out=out) is out and out.tolist() == [[10] * 3] * 2
        assert out.untyped_storage().nbytes() == 24
    """
    assert route(program, "add.out") == ("", "")


@pytest.mark.device
def test_a_gems_operator_that_writes_another_tensor_must_be_refused(route):
    program = """
        try:
            with torch.inference_mode():
                torch.ones(2, device=device).cos_()
        except TypeError as err:
            print(err)
    """
    stdout, _ = route(program, "cos_")
    assert "the Python kernel of aten::cos_ must write to 'self' and return it or None, got" in stdout


@pytest.mark.device
def test_an_operand_that_a_gems_operator_keeps_must_stay_that_operand(route):
    program = """
        x = torch.tensor([1.0, 2.0], device=device)
        assert torch.neg(x).tolist() == [-1, -2]
        (kept,) = ops.kept
        x.add_(1)
        for size in range(200):
            other = torch.ones(size + 3, device=device)
            torch.neg(other), other * other, torch.cat([other, other])
        assert ops.kept[0] is kept and kept.device.type == "cuda" and kept.shape == (2,)
        assert kept.data_ptr() == x.data_ptr() and kept.tolist() == [2, 3]
        assert len({id(one) for one in ops.kept}) == 201
        del x
        torch.full((2,), 9.0, device=device)
        assert kept.tolist() == [2, 3] and (kept + 1).tolist() == [3, 4]
        ops.kept.clear()
    """
    assert route(program, "neg") == ("", "")


@pytest.mark.device
def test_a_cycle_that_holds_an_operand_must_be_collected(route):
    program = """
        import gc
        x = torch.ones(2, device=device)
        for _ in range(3):
            torch.sin(x)
        gc.collect()
        assert [one() for one in ops.gone] == [None] * 3
        assert x.tolist() == [1, 1]
    """
    assert route(program, "sin") == ("", "")


@pytest.mark.device
def test_an_exception_of_a_gems_operator_must_leave_its_operands_usable(route):
    program = """
        x = torch.ones(2, device=device)
        for _ in range(2):
            try:
                x.tan_()
            except KeyError as err:
                assert err.args == ("from the operator",)
                frames, walk = [], err.__traceback__
                while walk:
                    frames.append(walk.tb_frame.f_code.co_name)
                    walk = walk.tb_next
                assert frames[-1] == "tan_", frames
            else:
                raise SystemExit("no exception")
        assert x.device.type == "flagos" and x.tolist() == [5, 5] and (x + 1).tolist() == [6, 6]
    """
    assert route(program, "tan_") == ("", "")


@pytest.mark.device
def test_gems_results_that_share_memory_must_share_it_here(route):
    program = """
        x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
        with torch.inference_mode():
            assert torch.abs(x).data_ptr() == x.data_ptr()
            view = torch.exp(x)
            assert view.device == x.device and view.tolist() == [[1, 3], [2, 4]] and view.stride() == (1, 2)
            assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
            view.zero_()
            assert x.sum().item() == 0
            low, high = torch.aminmax(x)
            assert low.data_ptr() == high.data_ptr() and low.untyped_storage()._cdata == high.untyped_storage()._cdata
            assert low.tolist() == [[1, 1], [1, 1]]
    """
    assert route(program, "abs", "exp", "aminmax") == ("", "")


@pytest.mark.device
def test_gems_operators_must_get_lists_and_optional_tensors_in_the_vendors_terms(route):
    program = """
        x, y = torch.ones(2, device=device), torch.zeros(2, device=device)
        assert torch.cat([x, y]).tolist() == [0, 0, 1, 1]
        table = torch.arange(6.0, device=device).view(2, 3)
        assert table[:, torch.tensor([2, 0], device=device)].tolist() == [[2, 0], [5, 3]]
        weight = torch.ones(3, device=device)
        expected = torch.layer_norm(table.cpu(), (3,))
        for given in (None, weight):
            assert torch.allclose(torch.layer_norm(table, (3,), given).cpu(), expected, atol=1e-5)
        values, indices = table.max(1)
        assert values.tolist() == [2, 5] and indices.tolist() == [2, 2]
        assert ops.seen == [
            ("cat", 2, 0), ("index", [True, False]), ("layer_norm", True, True), ("layer_norm", False, True),
        ], ops.seen
    """
    assert route(program, "cat", "index.Tensor", "native_layer_norm", "max.dim") == ("", "")


@pytest.mark.device
def test_a_gems_operator_with_too_few_results_must_be_refused(route):
    program = """
        try:
            torch.ones(2, 2, device=device).min(1)
        except RuntimeError as err:
            print(err)
    """
    stdout, _ = route(program, "min.dim")
    assert "the Python kernel of aten::min.dim must return a tuple of 2 values, got <class 'torch.Tensor'>" in stdout


@pytest.mark.device
def test_numbers_must_reach_gems_as_numbers_and_cpu_scalars_on_the_vendors_device(route):
    program = """
        x = torch.ones(2, device=device)
        assert (x + 2.5).tolist() == [3.5, 3.5] and (x + torch.tensor(2)).tolist() == [3, 3]
        assert ops.seen == [("float", 1), ("Tensor", 1)], ops.seen
    """
    assert route(program, "add.Tensor") == ("", "")


@pytest.mark.device
def test_devices_and_generators_must_reach_gems_as_the_vendors(route):
    program = """
        x = torch.zeros(2, device="flagos")
        assert x.device == torch.device("flagos:0") and x.tolist() == [7, 7] and ops.seen == [("zeros", 0)]
        generator = torch.Generator(device).manual_seed(3)
        first = torch.empty(4, device=device).uniform_(generator=generator)
        torch.flagos.manual_seed(5)
        free = torch.empty(4, device=device).uniform_()
        generator.manual_seed(3)
        assert torch.equal(first, torch.empty(4, device=device).uniform_(generator=generator))
        torch.flagos.manual_seed(5)
        assert torch.equal(free, torch.empty(4, device=device).uniform_()) and not torch.equal(first, free)
    """
    assert route(program, "zeros", "uniform_") == ("", "")


@pytest.mark.device
def test_arguments_with_default_values_must_be_left_to_gems(route):
    program = """
        x = torch.ones(2, 2, device=device)
        assert torch.nn.functional.gelu(x).tolist() == [[2, 2], [2, 2]]
        assert x.sum(1).tolist() == [2, 2] and ops.seen == [("sum_dim", [1])]
        try:
            torch.nn.functional.gelu(x, approximate="tanh")
        except TypeError as err:
            print(err)
    """
    stdout, _ = route(program, "gelu", "sum.dim_IntList")
    assert stdout == "gelu() got an unexpected keyword argument 'approximate'\n"


@pytest.mark.device
def test_a_gems_operator_must_run_on_its_operands_device(route):
    if (count := torch.flagos.device_count()) < 2:
        pytest.skip(f"needs a second device beside the current one; devices here: {count}")
    program = """
        last = torch.flagos.device_count() - 1
        torch.sqrt(torch.ones(2, device=f"flagos:{last}"))
        assert ops.seen == [(last, last)] and torch.flagos.current_device() == 0
    """
    assert route(program, "sqrt") == ("", "")


@pytest.mark.device
def test_vendor_tensors_beside_flagos_ones_must_be_refused_before_gems_is_called(route):
    program = """
        x = torch.ones(2, device=device)
        try:
            torch.add(x, torch.flagos.to_vendor(x))
        except RuntimeError as err:
            assert "found at least two devices, flagos:0 and cuda:0" in str(err), err
        assert ops.seen == []
    """
    assert route(program, "add.Tensor") == ("", "")


@pytest.mark.device
def test_gems_operators_must_run_in_many_threads(route):
    program = """
        import threading
        wrong = []
        def work(number):
            x = torch.full((number + 1,), float(number), device=device)
            for _ in range(200):
                y = torch.add(x, x)
                x.add_(torch.zeros_like(x))
                if y.tolist() != [2.0 * number] * (number + 1) or x.tolist() != [float(number)] * (number + 1):
                    wrong.append(number)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert not wrong and len(ops.seen) == 1200
    """
    assert route(program, "add.Tensor", "add_.Tensor") == ("", "")


@pytest.mark.device
def test_a_compiled_function_must_reach_gems(route):
    program = """
        @torch.compile(backend="aot_eager")
        def function(x, y):
            return (x + y).sum(1)
        x = torch.ones(2, 3, device=device, requires_grad=True)
        y = function(x, x)
        y.sum().backward()
        assert y.tolist() == [6, 6] and x.grad.tolist() == [[2] * 3] * 2
        assert ("Tensor", 1) in ops.seen and ("sum_dim", [1]) in ops.seen, ops.seen
    """
    # What Dynamo says on stderr depends on what is installed beside it.
    assert route(program, "add.Tensor", "sum.dim_IntList")[0] == ""


@pytest.mark.device
def test_an_operator_named_in_gems_must_get_vendor_tensors_too(route):
    program = "x = torch.ones(2, device=device)\nassert (x + x).tolist() == [2, 2] and len(ops.seen) == 1"
    assert route(program, FLAGOS_OP_add__Tensor="flagos_python flag_gems.ops:add") == ("", "")
