"""The end of a process: exit status 0 and nothing on stderr, whatever is still alive."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.device

START = "import torch_fl, torch, threading\n"
ALIVE = [
    pytest.param("keep = torch.rand(3, 40, device='flagos').chunk(3)[-1]", id="last-chunk"),
    pytest.param(
        "keep = torch.Generator(device='flagos'); torch.rand(4, device='flagos', generator=keep)", id="generator"
    ),
    pytest.param(
        "keep = torch.flagos.Stream(), torch.flagos.Event()\n"
        "with torch.flagos.stream(keep[0]):\n    torch.ones(9, device='flagos').exp_()\n"
        "keep[1].record(keep[0])",
        id="stream-and-event",
    ),
    # Died in one of five starts on a busy machine, before the autograd engine was ended ahead of the interpreter.
    pytest.param(
        "x = torch.ones(8, 8, device='flagos', requires_grad=True)\n"
        "keep = (x @ x).relu().sum()\nkeep.backward(retain_graph=True)",
        id="graph",
    ),
    pytest.param(
        "keep = torch.empty(16).pin_memory(), torch.nn.Linear(4, 4).to('flagos'), torch.ones(2, device='flagos')\n"
        "keep[2].cycle = keep[2]\n"
        "thread = threading.Thread(target=lambda: torch.ones(64, device='flagos').exp_().sum().item())\nthread.start()",
        id="pinned-module-cycle-thread",
    ),
]


@pytest.mark.parametrize("program", ALIVE)
def test_process_must_end_with_0_and_in_silence(run_ok, program):
    assert run_ok(START + program + "\nprint('last line')") == "last line\n"


def test_uncaught_exception_must_give_status_1_and_its_own_traceback(python):
    done = python(START + "x = torch.ones(2, 3, device='flagos')\ntorch.mm(x, x)")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("RuntimeError")


def test_autograd_threads_must_end_before_the_interpreter(run_ok):
    program = """
import atexit, os
def threads():
    names = (open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task"))
    return sum(name.startswith("pt_autograd") for name in names)
atexit.register(lambda: print(threads()))  # registered first, so it runs last
import torch_fl, torch
x = torch.ones(2, device="flagos", requires_grad=True)
(x * x).sum().backward()
print(threads())
"""
    before, after = map(int, run_ok(program).split())
    assert before >= 1
    assert after == 0
