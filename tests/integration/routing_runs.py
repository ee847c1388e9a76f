"""Runs of programs with routing asked for, and what the log says."""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent

from torch_fl._C import _build_options

SECONDS = 300
PYTHON_OPERATORS = bool(_build_options()["flaggems_python"])
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


def run_routed(folder, program, *, conf=None, fails=False, **variables):
    """Run a program in `folder`, beside a module `mine` of callables; return its stdout and stderr."""
    (folder / "mine.py").write_text(MINE)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FLAGOS_OP_")}
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    environment |= {"PYTHONPATH": path, "FLAGOS_LOG": "", "FLAGOS_BACKEND_CONFIG": "", **variables}
    if conf is not None:
        (folder / "routes.conf").write_text(dedent(conf))
        environment["FLAGOS_BACKEND_CONFIG"] = str(folder / "routes.conf")
    done = subprocess.run(
        [sys.executable, "-c", START + dedent(program)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode != 0) == fails, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout, done.stderr


def dispatches(stderr):
    """Return the log's lines as pairs of operator and target; any other line is a failure."""
    lines = stderr.splitlines()
    assert all(line.startswith("[flagos dispatch] ") for line in lines), stderr
    return [tuple(line.removeprefix("[flagos dispatch] ").split(" -> ")) for line in lines]
