"""Finding FlagGems' operators at load: what cannot serve is an error; of its list, what holds here is taken."""

from __future__ import annotations

import gems_like
import pytest
from routing_runs import PYTHON_OPERATORS, run_routed

pytestmark = pytest.mark.skipif(
    not PYTHON_OPERATORS, reason="this wheel was built with FLAGGEMS_KERNEL=OFF: it has no Python operators"
)


@pytest.mark.usefixtures("installed_wheel")
def test_gems_must_be_told_its_vendor_before_it_is_imported(tmp_path):
    gems_like.write(tmp_path, "import os\nprint(os.environ['GEMS_VENDOR'])\n" + gems_like.LIST)
    stdout, _ = run_routed(tmp_path, "", conf="neg = flagos_python")
    assert stdout in {"metax\n", "nvidia\n", "hygon\n"}


def test_gems_operators_that_cannot_serve_must_be_errors_at_load(tmp_path):
    gems_like.write(tmp_path)
    conf = "log = flagos_python\nceil = flagos_python\nmm = flagos_python\nadd.Tensor = flagos_python\n"
    conf += "tanh = flagos_python flag_gems.ops:no_such_call\n"
    _, stderr = run_routed(tmp_path, "", conf=conf, fails=True)
    path = tmp_path / "routes.conf"
    for line in (
        f"{path}:1: flag_gems.ops.no_such_call(A, B, C) fits no call of aten::log(Tensor self) -> Tensor; expected ",
        f"{path}:2: flag_gems has an operator for ceil, but registers it under a condition that does not hold here; ",
        f"{path}:3: flag_gems has no operator for mm; expected flag_gems.ops.mm, or a callable of yours",
        f"{path}:5: flag_gems.ops.no_such_call(A, B, C) fits no call of aten::tanh(Tensor self) -> Tensor; expected ",
    ):
        assert f"\n  {line}" in stderr
    assert stderr.count(f"{path}:") == 4


@pytest.mark.device
def test_an_entry_of_gems_whose_condition_fails_must_give_way_to_the_next(tmp_path):
    gems_like.write(tmp_path)
    program = """
from flag_gems import ops
assert torch.floor(torch.ones(2, device=device)).tolist() == [2, 2] and ops.kept == []
"""
    assert run_routed(tmp_path, program, conf="floor = flagos_python\n") == ("", "")


BLIND = """
from types import SimpleNamespace
runtime = SimpleNamespace(device=SimpleNamespace(device_count=0, name="cuda", vendor_name="nvidia"))
"""


@pytest.mark.device
@pytest.mark.parametrize(
    ("listed", "said"),
    [
        pytest.param(
            "raise RuntimeError('No device were detected on your machine ! \\n Please check.')",
            "module flag_gems fails at import: RuntimeError: No device were detected on your machine ! Please check.; "
            "expected a module that can be imported, which finds its device; GEMS_VENDOR is nobody",
            id="raises",
        ),
        pytest.param(
            BLIND + gems_like.LIST,
            "flag_gems finds no device: torch.cuda.device_count() is 0, as vendor nvidia; expected ",
            id="counts-none",
        ),
    ],
)
@pytest.mark.parametrize("named", [pytest.param("", id="found"), pytest.param(" flag_gems.ops:neg", id="named")])
def test_gems_without_its_device_must_be_one_error_at_load(tmp_path, listed, said, named):
    gems_like.write(tmp_path, listed)
    conf = f"neg = flagos_python{named}\nabs = flagos_python\n"
    _, stderr = run_routed(tmp_path, "", conf=conf, fails=True, GEMS_VENDOR="nobody")
    assert f"{tmp_path / 'routes.conf'}:1: {said}" in stderr
    assert stderr.count("routes.conf:") == 1
