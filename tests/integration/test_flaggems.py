"""FlagGems itself, where it is installed: every operator that can be routed gives by its route what FlagGems gives.

The same sweep runs everywhere with a package in FlagGems' place whose operators are PyTorch's own. What FlagGems gives
is compared with the CPU too, and reported: FLAGGEMS_REPORT names a file for it. After FLAGGEMS_SECONDS no further
operator is tried; the report counts those among the ones without calls. Operators of FlagGems that are wrong by
themselves, or give something else each time, do not fail the test, since no route can mend them; nor do those
that return a new tensor instead of writing to their operand. One that gives something else by its route does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple
from uuid import uuid4

import pytest
import torch
from gems_sweep import FAULTS, Outcome, compare_errors, replay_one
from routing_runs import PYTHON_OPERATORS, START
from sweeps.expected import this_machine

SWEEP = Path(__file__).parent / "gems_sweep.py"
# Triton compiles kernels for each type and number of dimensions, and FlagGems tunes some of them on the way.
SECONDS = 3000.0
GRACE = 30
SHARES = min(16, os.cpu_count() or 1)
# They carry this test's own tensors to the device and back.
CARRIERS = {"copy_", "_to_copy"}
# One or two for each way in which operands and results pass.
SAMPLED = (
    "add",
    "mul",
    "addmm",
    "cat",
    "index_put",
    "nn.functional.layer_norm",
    "uniform",
    "sort",
    "sum",
    "max",
    "stack",
)
LIKE_NAMES = """
add.Tensor add_.Tensor add.out mul.Tensor mul_.Tensor mul.out addmm addmm.out addmm_ mm cat cat.out stack linear
_index_put_impl_ index_put index_put_ native_layer_norm native_layer_norm_backward uniform_ sort sort.stable
sum sum.dim_IntList max max.dim
"""
LIKE = f"""
import torch

def _registered(name):
    packet, _, overload = name.partition(".")
    function = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return name, lambda *args, **kwargs: function(*args, **kwargs)

_FULL_CONFIG = tuple(map(_registered, {LIKE_NAMES.split()}))
"""

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(
        not PYTHON_OPERATORS, reason="this wheel was built with FLAGGEMS_KERNEL=OFF: it has no Python operators"
    ),
]


def without_flaggems():
    """Return why FlagGems cannot be used here; "" if it can."""
    missing = [name for name in ("flag_gems", "triton") if find_spec(name) is None]
    if missing:
        return f"not installed here: {', '.join(missing)}"
    return "" if torch.cuda.device_count() else "FlagGems needs torch.cuda, which this core of PyTorch does not have"


needs_flaggems = pytest.mark.skipif(bool(without_flaggems()), reason=without_flaggems())


class Done(NamedTuple):
    """How a process ended, and what it said."""

    status: str
    said: str


class Runs:
    """Processes with operators routed to FlagGems, or to what stands for it in a folder of its own."""

    def __init__(self, folder, package):
        self.folder, self.conf = folder, folder / "gems.conf"
        if package == "like":
            (folder / "flag_gems").mkdir()
            (folder / "flag_gems" / "__init__.py").write_text(LIKE)
            (folder / "flag_gems" / "ops.py").write_text("")
        path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        left_out = ("FLAGOS_OP_", "FLAGOS_BACKEND_CONFIG", "FLAGOS_LOG")
        self.environ = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
        self.environ |= {"PYTHONPATH": path}
        self.seconds = SECONDS
        if package == "real" and (seconds := os.environ.get("FLAGGEMS_SECONDS")):
            self.environ["GEMS_SWEEP_END"] = str(time.time() + float(seconds))
            self.seconds = float(seconds) + GRACE

    def run(self, *arguments, routed=True):
        environ = self.environ | ({"FLAGOS_BACKEND_CONFIG": str(self.conf)} if routed else {})
        command = [sys.executable, *map(str, arguments)]
        with (self.folder / f"{uuid4()}.out").open("w+") as out:
            try:
                done = subprocess.run(
                    command, cwd=self.folder, env=environ, stdout=out, stderr=out, timeout=self.seconds, check=False
                )
                status = str(done.returncode)
            except subprocess.TimeoutExpired:
                status = "not in time"
            out.seek(0)
            return Done(status, out.read())

    def route(self):
        """Route all that FlagGems registers and that can be; return those, and the refusals of the others."""
        listed = self.run(SWEEP, "names", routed=False)
        assert listed.status == "0", listed.said
        (names,) = [json.loads(line)["names"] for line in listed.said.splitlines() if line.startswith('{"names')]
        names = [name for name in names if name not in CARRIERS]
        self._write(names)
        refused = {}
        done = self.run("-c", "import torch_fl")
        if done.status != "0":
            told = re.findall(rf"^  {re.escape(str(self.conf))}:(\d+): (.*)$", done.said, re.MULTILINE)
            assert told, done.said
            refused = {names[int(number) - 1]: words for number, words in told}
        routed = [name for name in names if name not in refused]
        self._write(routed)
        return routed, refused

    def _write(self, names):
        self.conf.write_text("".join(f"{name} = flagos_python\n" for name in names))

    def replay(self, operators):
        """Replay operators in turn; one that ends its process is noted, and the next ones have a new process."""
        results, left = [], list(operators)
        while left:
            done = self.run(SWEEP, "replay", *left)
            lines = [json.loads(line) for line in done.said.splitlines() if line.startswith('{"')]
            results += [line for line in lines if "operator" in line]
            begun = [line["begins"] for line in lines if "begins" in line]
            assert begun, f"{done.status}: {done.said}"
            if done.status != "0":
                if begun[-1] != (results[-1]["operator"] if results else None):
                    blank = {"calls": 1, "right": 0, **{key: [] for key in FAULTS}}
                    results.append({"operator": begun[-1], **blank})
                # It may end after its result, too: at exit, or by what the operator left behind.
                results[-1]["raises"].insert(0, f"the process ended: {done.status}: {done.said[-300:]}")
            left = left[left.index(begun[-1]) + 1 :]
        return results


def summary(results, refused):
    """Return the report: numbers of operators, and the names of those that are not all right."""
    tried = [result for result in results if result["calls"]]
    lists = {key: {r["operator"]: r[key][:3] for r in results if r[key]} for key in FAULTS}
    faulty = set().union(*lists.values())
    return {
        "routed": len(results),
        "tried": len(tried),
        "serve": sum(result["right"] > 0 for result in tried),
        "right": sum(result["operator"] not in faulty for result in tried),
        "calls": sum(result["calls"] for result in results),
        "without calls": sorted(result["operator"] for result in results if not result["calls"]),
        **lists,
        "refused": refused,
    }


@pytest.mark.parametrize("package", [pytest.param("real", marks=needs_flaggems), "like"])
def test_every_operator_must_give_by_its_route_what_it_gives_itself(tmp_path, package):
    runs = Runs(tmp_path, package)
    routed, refused = runs.route()
    shares, names = (SHARES, ()) if package == "real" else (1, SAMPLED)
    with ThreadPoolExecutor(shares) as pool:
        for done in pool.map(lambda at: runs.run(SWEEP, "collect", at, shares, *names, routed=False), range(shares)):
            assert done.status == "0", done.said
        results = [
            one for share in pool.map(runs.replay, [routed[at::shares] for at in range(shares)]) for one in share
        ]
    report = summary(results, refused)
    text = json.dumps(report, indent=1, sort_keys=True)
    print(text)
    if package == "real" and (path := os.environ.get("FLAGGEMS_REPORT")):
        Path(path).write_text(text)
    assert {result["operator"] for result in results} == set(routed)
    # After FLAGGEMS_SECONDS, some have no calls; of those that have, most must give something right.
    assert report["calls"] > report["tried"]
    assert report["serve"] > report["tried"] / 2
    assert not report["differs"]
    # A device's own kernels order ties otherwise than the CPU's, and have not all types.
    assert not (this_machine().software and package == "like") or not any(report[key] for key in FAULTS)


RESULT = {"operator": "mm", "calls": 2, "right": 2, **{key: [] for key in FAULTS}}


@pytest.mark.parametrize(
    ("said", "right"),
    [
        pytest.param('{"begins": "mm"}\n', 0, id="before-its-result"),
        pytest.param(f'{{"begins": "mm"}}\n{json.dumps(RESULT)}\n', 2, id="after-its-result"),
    ],
)
def test_a_process_that_dies_must_be_told_of_the_operator_that_it_had_begun(tmp_path, monkeypatch, said, right):
    runs = Runs(tmp_path, "like")
    monkeypatch.setattr(runs, "run", lambda *_: Done("-11", said))
    (result,) = runs.replay(["mm"])
    assert (result["operator"], result["right"]) == ("mm", right)
    assert [line.split(": ")[:2] for line in result["raises"]] == [["the process ended", "-11"]]


STEP = """
    import time
    def step(target):
        torch.manual_seed(3)
        layers = torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.GELU(), torch.nn.Linear(64, 8)
        model = torch.nn.Sequential(*layers).to(target)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, labels = torch.randn(32, 64).to(target), (torch.arange(32) % 8).to(target)
        for _ in range(3):
            loss = torch.nn.functional.cross_entropy(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [loss.detach().cpu(), *(parameter.detach().cpu() for parameter in model.parameters())]
    for got, expected in zip(step(device), step("cpu")):
        torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)
    stream = torch.flagos.Stream()
    with torch.flagos.stream(stream):
        assert torch.cuda.current_stream().stream_id == stream.stream_id
    import flag_gems
    def cost(function, *operands):
        for _ in range(200):
            function(*operands)
        torch.flagos.synchronize()
        begin = time.perf_counter()
        for _ in range(2000):
            function(*operands)
        spent = time.perf_counter() - begin
        torch.flagos.synchronize()
        return round(spent / 2000 * 1e6, 2)
    x = torch.ones(64, 64, device=device)
    y = torch.flagos.to_vendor(x)
    costs = {"routed": cost(torch.add, x, x), "FlagGems": cost(flag_gems.add, y, y), "vendor": cost(torch.add, y, y)}
    print("us per add:", costs)
"""


@needs_flaggems
def test_a_training_step_must_run_on_flaggems_and_the_streams_be_the_same(tmp_path):
    runs = Runs(tmp_path, "real")
    routed, _ = runs.route()
    done = runs.run("-c", START + dedent(STEP))
    assert done.status == "0", f"{len(routed)} routed\n{done.said}"
    print(done.said)


X = (torch.tensor([1.0, 2.0]),)
FACTORS = count(1)
REFUSED = TypeError("flagos: the Python kernel of aten::neg_ must write to 'self' and return it or None, got another")


@pytest.mark.parametrize(
    ("operator", "function", "call", "faults"),
    [
        pytest.param("neg", torch.neg, (X, {}), set(), id="right"),
        pytest.param("neg", torch.abs, (X, {}), {"differs"}, id="differs"),
        pytest.param("neg", lambda x: x.mul_(-1), (X, {}), {"differs"}, id="writes"),
        pytest.param("neg", lambda x: next(FACTORS) * x, (X, {}), {"wrong"}, id="wrong"),
        pytest.param("neg", lambda x: (next(FACTORS) / 1000 - 1) * x, (X, {}), {"unsteady"}, id="unsteady"),
        pytest.param("zeros", torch.ops.aten.zeros, (([2],), {"device": torch.device("cpu")}), set(), id="device"),
        pytest.param("neg", torch.ops.aten.neg.default, (("no tensor",), {}), {"raises"}, id="raises"),
    ],
)
def test_each_call_must_come_under_its_heading(operator, function, call, faults):
    found = replay_one(operator, function, [call])
    assert {key for key in FAULTS if found[key]} == faults
    assert found["right"] == (0 if faults else 1)


@pytest.mark.parametrize(
    ("result", "heading"), [pytest.param(X[0], "differs", id="wrote"), pytest.param(X[0] + 1, "raises", id="elsewhere")]
)
def test_a_refusal_by_the_route_must_be_a_difference_only_where_the_operator_wrote(result, heading):
    routed, itself = Outcome(None, REFUSED, (X, {})), Outcome(result, None, (X, {}))
    assert compare_errors(routed, itself)[0] == heading
