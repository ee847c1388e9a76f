"""What `import torch_fl` costs over `import torch`, in an environment where the wheel is installed.

    python benchmarks/import_time.py .venv/bin/python --rounds 15

Each round starts one interpreter per statement, in turn, so that a change of the machine's load meets all of them; the
time is that of the import alone, in the new interpreter. The ratio of the medians is the result; single times mean
little. The loader finds a driver stack outside the default directories by LD_LIBRARY_PATH, as at run time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

STATEMENTS = {"torch": "import torch", "torch_fl": "import torch_fl"}
_PROGRAM = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"


def measure(python: Path, statement: str, directory: str) -> float:
    """Return the seconds that the statement takes in a new interpreter; its failure is ours."""
    program = _PROGRAM.format(statement)
    done = subprocess.run([str(python), "-c", program], stdout=subprocess.PIPE, text=True, check=True, cwd=directory)
    return float(done.stdout.split()[-1])


def rounds(python: Path, count: int) -> dict[str, list[float]]:
    """Return the times of `count` interleaved rounds, after one that fills the page cache."""
    times: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(count + 1):
            for name, statement in STATEMENTS.items():
                taken = measure(python, statement, directory)
                if number:
                    times[name].append(taken)
    return times


def main() -> int:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", type=Path, help="interpreter of the environment with torch and torch_fl")
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds (default: 15)")
    parser.add_argument("--json", action="store_true", help="seconds of every round, for machines")
    args = parser.parse_args()
    # The link in a virtual environment must not be resolved: it is what makes it that environment.
    times = rounds(args.python.absolute(), args.rounds)
    if args.json:
        print(json.dumps({"schema": 1, "seconds": times}, sort_keys=True))
        return 0
    base = statistics.median(times["torch"])
    print(f"{'import':<10} {'median s':>9} {'min s':>9} {'max s':>9} {'ratio':>7}")
    for name, taken in times.items():
        middle = statistics.median(taken)
        print(f"{name:<10} {middle:9.3f} {min(taken):9.3f} {max(taken):9.3f} {middle / base:6.3f}x")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
