"""Accuracy of a few operators against the CPU, as a script: prints JSON and exits 1 when a bound is exceeded.

    python accuracy.py --mm-tolerance 9.5e-06
    {"add": 0.0, "mm": 3.81e-06, "mul": 0.0, "silu": 2.38e-07, "softmax": 1.2e-07}

One line: the largest absolute difference to the CPU's result by operator, for softmax that of the row sums to 1. A line
of words follows for each operator outside its bound. Addition and multiplication must agree bit for bit; how far a
matrix product may be off depends on the vendor's precision and order of accumulation, so its bound is an argument.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

import torch_fl  # noqa: F401  # isort: skip - the plugin first: what it loads is what torch then runs on
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIDE = 512
SEED = 0
SILU_BOUND = 2.4e-07
SOFTMAX_BOUND = 1e-06


def largest_difference(function: Callable[..., torch.Tensor], *inputs: torch.Tensor, device: str) -> float:
    """Return the largest absolute difference between the function's results on the device and on the CPU."""
    got = function(*(value.to(device) for value in inputs)).cpu()
    return float((got - function(*inputs)).abs().max())


def row_sum_error(values: torch.Tensor, *, device: str) -> float:
    """Return how far the rows of a softmax are from summing to 1; summed on the CPU in float64."""
    rows = values.to(device).softmax(-1).cpu().double().sum(-1)
    return float((rows - 1).abs().max())


def measure(device: str) -> dict[str, float]:
    """Return the difference per operator for fixed inputs of 512 x 512 float32."""
    generator = torch.Generator().manual_seed(SEED)
    left, right = (torch.randn(SIDE, SIDE, generator=generator) for _ in range(2))
    return {
        "add": largest_difference(torch.add, left, right, device=device),
        "mul": largest_difference(torch.mul, left, right, device=device),
        # The published bound is two units in the last place of results below 2, which is what an H200 needs.
        "silu": largest_difference(torch.nn.functional.silu, left.clamp(-2, 2), device=device),
        # Divided, so that the sums stay near the size of the inputs, as the published figures have it.
        "mm": largest_difference(torch.mm, left, right / SIDE**0.5, device=device),
        "softmax": row_sum_error(left, device=device),
    }


def bounds(mm_tolerance: float) -> dict[str, float]:
    """Return the bound per operator."""
    return {"add": 0.0, "mul": 0.0, "silu": SILU_BOUND, "mm": mm_tolerance, "softmax": SOFTMAX_BOUND}


def outside(differences: dict[str, float], limits: dict[str, float]) -> list[str]:
    """Return a sentence for each operator outside its bound; NaN is within none."""
    return [
        f"{name} differs from the CPU by {difference:.3g}, allowed is {limits[name]:.3g}"
        for name, difference in differences.items()
        if not difference <= limits[name]
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the differences as JSON; return 1 when an operator is outside its bound, after saying which."""
    parser = argparse.ArgumentParser(description="compare operators with the CPU")
    parser.add_argument(
        "--mm-tolerance", type=float, required=True, help="largest accepted difference of mm, 512 x 512"
    )
    parser.add_argument("--device", default="flagos:0")
    options = parser.parse_args(argv)
    differences = measure(options.device)
    print(json.dumps(differences, sort_keys=True))
    findings = outside(differences, bounds(options.mm_tolerance))
    for finding in findings:
        print(f"accuracy: {finding}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
