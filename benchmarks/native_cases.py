"""The worker of native.py: `python native_cases.py DEVICE CPU...`; requests on stdin, answers on stdout, JSON by line.

A request names a case and how often to run it; the answer has microseconds per run, by the wall clock, with one
synchronisation before and one after.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# Width, heads, layers, sequence, batch.
STEPS = {"step d=64": (64, 4, 6, 64, 8), "step d=1024": (1024, 16, 6, 512, 8)}
VOCABULARY = 1000


def operators(device: str) -> dict[str, Callable[[], object]]:
    """Return the calls to time; small operands, so that the host's part is what counts."""
    import torch  # noqa: PLC0415 - the plugin must come first, where there is one
    from torch.nn import functional  # noqa: PLC0415 - as above

    x, y, out, weight, bias = (torch.ones(8, device=device) for _ in range(5))
    row, matrix = torch.ones(4, device=device), torch.ones(4, 4, device=device)
    batch, table = torch.ones(2, 4, 4, device=device), torch.ones(16, 8, device=device)
    indices, many = torch.arange(8, device=device), [torch.ones(8, device=device) for _ in range(32)]
    return {
        "add": lambda: torch.add(x, y),
        "add_": lambda: x.add_(y),
        "add out=": lambda: torch.add(x, y, out=out),
        "mul scalar": lambda: torch.mul(x, 2.0),
        "relu": lambda: torch.relu(x),
        "mm": lambda: torch.mm(matrix, matrix),
        "addmm": lambda: torch.addmm(row, matrix, matrix),
        "bmm": lambda: torch.bmm(batch, batch),
        "softmax": lambda: torch.softmax(matrix, 1),
        "layer_norm": lambda: functional.layer_norm(x, (8,), weight, bias),
        "gelu": lambda: functional.gelu(x),
        "view": lambda: x.view(2, 4),
        "transpose": matrix.t,
        "select": lambda: matrix[1],
        "empty": lambda: torch.empty(8, device=device),
        "cat": lambda: torch.cat((x, y)),
        "copy_": lambda: out.copy_(y),
        "sum": matrix.sum,
        "embedding": lambda: functional.embedding(indices, table),
        "linear": lambda: functional.linear(matrix, matrix, row),
        "_foreach_add_ of 32": lambda: torch._foreach_add_(many, 0.0),
    }


class Training:
    """A transformer encoder that is trained step by step; `loss` is the last one."""

    def __init__(self, device: str, shape: tuple[int, int, int, int, int]) -> None:
        import torch  # noqa: PLC0415 - the plugin must come first, where there is one
        from torch import nn  # noqa: PLC0415 - as above

        width, heads, layers, length, batch = shape
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        model = nn.Sequential(nn.Embedding(VOCABULARY, width), encoder, nn.Linear(width, VOCABULARY))
        self.model = model.to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.text = (torch.arange(batch * (length + 1)) * 7 % VOCABULARY).reshape(batch, length + 1).to(device)
        self.cross_entropy = nn.functional.cross_entropy
        self.loss: Any = None

    def step(self) -> None:
        """Run one step."""
        self.optimizer.zero_grad()
        scores = self.model(self.text[:, :-1])
        self.loss = self.cross_entropy(scores.flatten(0, 1), self.text[:, 1:].flatten())
        self.loss.backward()
        self.optimizer.step()


class Cases:
    """What was prepared so far on one device."""

    def __init__(self, device: str) -> None:
        import torch  # noqa: PLC0415 - the plugin must come first, where there is one

        self.device = device
        self.torch = torch
        self.operators = operators(device)
        self.trainings: dict[str, Training] = {}

    def facts(self) -> dict[str, str]:
        """Return what ran."""
        torch = self.torch
        name = torch.get_device_module(self.device).get_device_name(0)
        return {"torch": torch.__version__, "python": sys.version.split()[0], "device": name}

    def timed(self, call: Callable[[], object], count: int) -> float:
        """Return microseconds per call."""
        synchronize = self.torch.get_device_module(self.device).synchronize
        synchronize()
        start = time.perf_counter_ns()
        for _ in range(count):
            call()
        synchronize()
        return (time.perf_counter_ns() - start) / count / 1000

    def run(self, case: str, count: int) -> dict[str, object]:
        """Answer one request."""
        if case == "facts":
            return {"us": 0, "told": self.facts()}
        if case == "cases":
            kinds = dict.fromkeys(self.operators, "operator") | dict.fromkeys(STEPS, "step")
            return {"us": 0, "told": json.dumps(kinds)}
        if case in STEPS:
            if case not in self.trainings:
                self.trainings[case] = Training(self.device, STEPS[case])
            training = self.trainings[case]
            taken = self.timed(training.step, count)
            return {"us": taken, "told": training.loss.item()}
        with self.torch.no_grad():
            return {"us": self.timed(self.operators[case], count), "told": None}


def main() -> None:
    """Answer requests until stdin ends. Operators run on the first CPU, steps, which have threads, on all."""
    device, cpus = sys.argv[1], {int(cpu) for cpu in sys.argv[2:]}
    os.sched_setaffinity(0, cpus)
    if device == "flagos":
        import torch_fl  # noqa: F401, PLC0415 - registers the device, and must come before torch
    cases = Cases(device)
    for line in sys.stdin:
        request = json.loads(line)
        os.sched_setaffinity(0, cpus if request["case"] in STEPS else {min(cpus)})
        print(json.dumps(cases.run(request["case"], request["count"])), flush=True)


if __name__ == "__main__":
    main()
