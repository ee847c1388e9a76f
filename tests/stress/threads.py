"""Threads that share tensors: `python -m tests.stress.threads [--threads 64] [--seconds 60]`.

Every thread reads the same weights, views and lists, works on tensors of its own in place, resizes them, lets kernels
throw, and runs backward passes; each result is compared with the one computed before by one thread. Exit code 1 and one
line per kind of failure if anything differed.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import torch_fl  # noqa: F401 - registers the device, and must come before torch

# isort: split

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable


class Shared:
    """Tensors that all threads read, and never write."""

    def __init__(self, device: str) -> None:
        torch.manual_seed(3)
        self.weight = torch.randn(16, 16).to(device)
        self.columns = self.weight.t()
        self.row = self.weight[3]
        self.part = self.weight[2:10, 4:]
        self.scale, self.bias = torch.randn(16).to(device), torch.randn(16).to(device)
        self.table = torch.randn(10, 16).to(device)
        self.indices = (torch.arange(12) % 10).to(device)
        self.spectrum = torch.view_as_complex(torch.randn(8, 2)).to(device).conj()


def backward(shared: Shared) -> torch.Tensor:
    """Return a gradient that went through shared weights."""
    own = shared.row.clone().requires_grad_()
    functional.layer_norm(own @ shared.weight + shared.bias, (16,), shared.scale).sum().backward()
    assert own.grad is not None
    return own.grad


def in_place(shared: Shared) -> torch.Tensor:
    """Return a tensor that was changed in place, through a view too."""
    own = shared.weight.clone()
    own[1:5].add_(shared.weight[2:6]).mul_(2)
    own.t().sub_(shared.weight)
    return own


def resized(shared: Shared) -> torch.Tensor:
    """Return what an operator wrote into a result that was too small."""
    out = torch.empty(0, device=shared.weight.device)
    torch.mm(shared.weight, shared.columns, out=out)
    out.resize_(4, 64)
    return out


def refused(shared: Shared) -> torch.Tensor:
    """Let a kernel throw, and return an operand as it is afterwards."""
    try:
        torch.mm(shared.weight, shared.table)
    except RuntimeError:
        return shared.weight.clone()
    raise AssertionError("mm of 16x16 and 10x16 was not refused")


TASKS: dict[str, Callable[[Shared], torch.Tensor]] = {
    "add": lambda shared: shared.weight + shared.columns,
    "same twice": lambda shared: shared.weight * shared.weight,
    "mm": lambda shared: torch.mm(shared.weight, shared.columns),
    "linear": lambda shared: functional.linear(shared.part, shared.part, shared.bias[:8]),
    "softmax": lambda shared: torch.softmax(shared.part, 1),
    "cat": lambda shared: torch.cat((shared.weight, shared.columns, shared.table)),
    "foreach": lambda shared: torch.stack(torch._foreach_mul([shared.scale, shared.bias, shared.row], 2.0)),
    "embedding": lambda shared: functional.embedding(shared.indices, shared.table),
    "index": lambda shared: shared.table[shared.indices],
    "conjugate": lambda shared: (shared.spectrum * 2).resolve_conj().real,
    "to cpu and back": lambda shared: shared.part.cpu().to(shared.part.device),
    "backward": backward,
    "in place": in_place,
    "resized": resized,
    "refused": refused,
}


def work(shared: Shared, expected: dict[str, torch.Tensor], seed: int, deadline: float, report: Report) -> None:
    """Run tasks in random order until the deadline."""
    choose = random.Random(seed)  # noqa: S311 - which task comes next is no secret
    names = list(TASKS)
    while time.monotonic() < deadline:
        name = choose.choice(names)
        try:
            found = TASKS[name](shared).cpu()
            good = torch.equal(found, expected[name]) or torch.allclose(found, expected[name], rtol=1e-4, atol=1e-4)
            report.add(name, "" if good else "a wrong result")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted and fails the run
            report.add(name, f"{type(error).__name__}: {error}".splitlines()[0])


class Report:
    """What all threads have done."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def add(self, name: str, failure: str) -> None:
        """Count one task."""
        with self.lock:
            self.done[name] += 1
            if failure:
                self.failed[f"{name}: {failure}"] += 1


def main() -> int:
    """Run the threads and say what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    shared, report = Shared("flagos"), Report()
    expected = {name: task(shared).cpu() for name, task in TASKS.items()}
    before = {name: value.clone().cpu() for name, value in vars(shared).items()}
    deadline = time.monotonic() + args.seconds
    threads = [
        threading.Thread(target=work, args=(shared, expected, seed, deadline, report)) for seed in range(args.threads)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, value in before.items():
        if not torch.equal(value, getattr(shared, name).cpu()):
            report.add(name, "a shared tensor has changed")
    for failure, count in report.failed.items():
        print(f"{count} x {failure}", file=sys.stderr)
    done, failed = sum(report.done.values()), sum(report.failed.values())
    print(f"{args.threads} threads, {args.seconds:.0f} s: {done} tasks, {failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
