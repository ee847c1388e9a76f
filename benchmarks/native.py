"""flagos against the vendor's own device, each in a process of its own, in turn: operators and training steps.

    python benchmarks/plain_build.py build/plain                 # or an installed wheel
    python benchmarks/native.py --plugin build/plain --json out.json

One process has no plugin and times `cuda`, the other has it and times `flagos`; both stay, and one works at a time.
Two processes, because a torch process has one accelerator: with a plugin loaded, autograd follows the streams of the
plugin's device type, and asserts on native tensors that need gradients. Both run on the same two CPUs (operators on
one), since cores differ by more than a plugin costs, and short blocks alternate, so that a change of the machine's
state meets both. The result is the median of the differences between neighbouring blocks, and the ratio that follows.

Where a process's memory came to lie stays with it, and moves single operators by some tenths of a microsecond either
way; on some machines, in some processes, every launch takes a microsecond longer. With --pairs N all that is done with
N pairs of processes, one pair after the other; the result is their median, printed with the least and the most of them.
How far that can be trusted is what --control says: both processes of each pair are then native.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

DEVICES = ("cuda", "flagos")
FIGURES = ("cuda_us", "flagos_us", "over_us", "over_min_us", "ratio")
WORKER = Path(__file__).resolve().parent / "native_cases.py"


class Worker:
    """A process that times cases on one device when told to."""

    def __init__(self, device: str, plugin: Path | None, cpus: list[int]) -> None:
        environ = dict(os.environ)
        if device == "flagos" and plugin is not None:
            environ["PYTHONPATH"] = f"{plugin.resolve()}{os.pathsep}{environ.get('PYTHONPATH', '')}"
        elif device != "flagos":
            environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
            environ["FLAGOS_HOOK"] = "0"
        command = [sys.executable, str(WORKER), device, *map(str, cpus)]
        self.process = subprocess.Popen(command, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.device = device

    def ask(self, request: dict[str, object]) -> dict[str, object]:
        """Send one request and return the answer.

        Raises:
            RuntimeError: the worker is gone; its own words are on stderr.
        """
        assert self.process.stdin is not None  # noqa: S101 - given above
        assert self.process.stdout is not None  # noqa: S101 - given above
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker for {self.device} ended with {self.process.wait()} at {request}")
        answer: dict[str, object] = json.loads(line)
        return answer

    def cases(self) -> dict[str, str]:
        """Return the names of the cases, and whether each is an operator or a step."""
        found: dict[str, str] = json.loads(str(self.ask({"case": "cases", "count": 0})["told"]))
        return found

    def end(self) -> None:
        """Let the process end."""
        self.process.communicate()


def measure(workers: dict[str, Worker], case: str, count: int, rounds: int) -> dict[str, object]:
    """Return all times of a case, in microseconds per call or step, and what the device said of its results."""
    times: dict[str, list[float]] = {device: [] for device in DEVICES}
    told: dict[str, object] = {}
    for number in range(rounds + 1):
        order = DEVICES if number % 2 else DEVICES[::-1]
        for device in order:
            answer = workers[device].ask({"case": case, "count": count})
            told[device] = answer["told"]
            if number:
                times[device].append(float(str(answer["us"])))
    native = statistics.median(times["cuda"])
    over = statistics.median(ours - theirs for theirs, ours in zip(times["cuda"], times["flagos"], strict=True))
    return {
        "cuda_us": native,
        "flagos_us": statistics.median(times["flagos"]),
        "over_us": over,
        "over_min_us": min(times["flagos"]) - min(times["cuda"]),
        "ratio": 1 + over / native,
        "us": times,
        "told": told,
    }


def measure_pair(args: argparse.Namespace, cpus: list[int]) -> tuple[dict[str, object], dict[str, dict[str, object]]]:
    """Return what both devices are, and the results of all cases, from a pair of new processes."""
    workers = {device: Worker("cuda" if args.control else device, args.plugin, cpus) for device in DEVICES}
    facts = {device: workers[device].ask({"case": "facts", "count": 0})["told"] for device in DEVICES}
    results = {}
    for case, kind in workers["cuda"].cases().items():
        if not args.cases or case in args.cases:
            results[case] = measure(workers, case, args.steps if kind == "step" else args.calls, args.rounds)
            if args.pairs == 1:
                show(case, results[case])
    for worker in workers.values():
        worker.end()
    return facts, results


def median_of(results: list[dict[str, object]]) -> dict[str, object]:
    """Return the medians of a case's figures over all pairs, and the pairs' own results."""
    medians = {key: statistics.median(float(str(one[key])) for one in results) for key in FIGURES}
    over = [float(str(one["over_us"])) for one in results]
    return {**medians, "over_least_us": min(over), "over_most_us": max(over), "pairs": results}


def show(name: str, result: dict[str, object]) -> None:
    """Print one row, on stderr: what was asked for as JSON goes to stdout."""
    numbers = [float(str(result[key])) for key in FIGURES]
    row = "{:24} {:10.2f} {:10.2f} {:+9.3f} {:+9.3f} {:7.4f}".format(name, *numbers)
    if "pairs" in result:
        row += f"  {result['over_least_us']:+.3f}..{result['over_most_us']:+.3f}"
    print(row, file=sys.stderr, flush=True)


def main() -> None:
    """Run everything and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", type=Path, help="folder of plain_build.py; otherwise the installed wheel")
    parser.add_argument("--calls", type=int, default=500, help="calls in a block (default: 500)")
    parser.add_argument("--steps", type=int, default=4, help="training steps in a block (default: 4)")
    parser.add_argument("--rounds", type=int, default=60, help="pairs of blocks (default: 60)")
    parser.add_argument("--pairs", type=int, default=1, help="pairs of processes, one after the other (default: 1)")
    parser.add_argument("--control", action="store_true", help="native in both places: how far figures scatter")
    parser.add_argument("--cpus", nargs="*", type=int, help="where both run (default: the last two that we may use)")
    parser.add_argument("--cases", nargs="*", help="only these")
    parser.add_argument("--json", type=Path, help="where the figures go (default: stdout)")
    args = parser.parse_args()
    cpus = args.cpus or sorted(os.sched_getaffinity(0))[-2:]
    second = "native us" if args.control else "flagos us"
    print(f"{'case':24} {'cuda us':>10} {second:>10} {'over':>9} {'by min':>9} {'ratio':>7}", file=sys.stderr)
    found = []
    for number in range(args.pairs):
        if args.pairs > 1:
            print(f"pair {number + 1} of {args.pairs}", file=sys.stderr, flush=True)
        found.append(measure_pair(args, cpus))
    cases = {case: median_of([results[case] for _, results in found]) for case in found[0][1]}
    if args.pairs > 1:
        print(f"medians of {args.pairs} pairs of processes, and their least and most", file=sys.stderr)
        for case, result in cases.items():
            show(case, result)
    report = {"schema": 2, "control": args.control, "facts": found[0][0], "cases": cases}
    text = json.dumps(report, sort_keys=True, indent=1)
    if args.json:
        args.json.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
