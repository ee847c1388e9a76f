"""What an operator call on flagos costs over the same call on the vendor's own device.

Run where `torch_fl` is installed and its vendor's device `cuda` works in the same process (a vendor core, or a CUDA
build of torch): `python benchmarks/dispatch.py [--calls N] [--rounds N]`. Each round times both devices in turn, in one
thread, with one synchronisation at its end; the table gives medians in nanoseconds per call, and the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING

import torch_fl  # noqa: F401 - registers the device, and must come before torch

# isort: split

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICES = ("cuda", "flagos")


def cases(device: str) -> dict[str, Callable[[], object]]:
    """Return the calls to time, by name; small operands, so that the host's part is what counts."""
    x, y, out = (torch.ones(8, device=device) for _ in range(3))
    matrix = torch.ones(4, 4, device=device)
    many = [torch.ones(8, device=device) for _ in range(32)]
    return {
        "add(x, y)": lambda: torch.add(x, y),
        "add(x, y, out=)": lambda: torch.add(x, y, out=out),
        "x.add_(y)": lambda: x.add_(y),
        "x.view": lambda: x.view(2, 4),
        "empty": lambda: torch.empty(8, device=device),
        "mm": lambda: torch.mm(matrix, matrix),
        "_foreach_add_ of 32": lambda: torch._foreach_add_(many, 0.0),
    }


def nanoseconds(call: Callable[[], object], device: str, calls: int) -> float:
    """Return the time of one call."""
    module = torch.get_device_module(device)
    module.synchronize()
    start = time.perf_counter_ns()
    for _ in range(calls):
        call()
    module.synchronize()
    return (time.perf_counter_ns() - start) / calls


def main() -> None:
    """Time every case and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    prepared = {device: cases(device) for device in DEVICES}
    print(f"{'case':22} {'cuda ns':>9} {'flagos ns':>9} {'over':>7} {'ratio':>6}")
    with torch.no_grad():
        for name in prepared["cuda"]:
            times: dict[str, list[float]] = {device: [] for device in DEVICES}
            for _ in range(options.rounds):
                for device in DEVICES:
                    times[device].append(nanoseconds(prepared[device][name], device, options.calls))
            cuda, flagos = (statistics.median(times[device]) for device in DEVICES)
            print(f"{name:22} {cuda:9.0f} {flagos:9.0f} {flagos - cuda:7.0f} {flagos / cuda:6.2f}")


if __name__ == "__main__":
    main()
