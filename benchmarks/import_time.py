"""What the wheel costs at import over stock torch, in an environment where it is installed.

    python benchmarks/import_time.py .venv/bin/python --rounds 20

Each round starts one interpreter per case, in turn, so that a change of the machine's load meets all of them. The time
is that of the import alone, in the new interpreter: wall-clock, and the processor's, which load disturbs less.
The ratio of the medians is the result; single times mean little. The loader finds a driver stack outside the default
directories by LD_LIBRARY_PATH, as at run time. With --relink the environment's torch is relinked for the last case and
restored afterwards; without it that case is left out, since it changes the environment.

Last comes what the hook's line in the .pth file adds to the start of an interpreter that never imports torch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = """
import time
wall, cpu = time.perf_counter(), time.process_time()
import {}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""
# As `site` does it, in an interpreter that has not done it yet.
_START = """
import site, sys, time
folder = {folder!r}
sys.path.append(folder)
known = site._init_pathinfo()
before = time.perf_counter()
site.addpackage(folder, "torch_fl.pth", known)
print(time.perf_counter() - before)
assert "torch_fl_boot.hook" in sys.modules
"""
_OFF = {"FLAGOS_HOOK": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to import: the module, and the variables that are set."""

    module: str
    variables: dict[str, str]


# An interpreter that imports nothing is quick to start: so many for each round.
STARTS = 10
STOCK = "stock"
CASES = {
    STOCK: Case(module="torch", variables=_OFF),
    "preload": Case(module="torch_fl", variables={"FLAGOS_HOOK": "0"}),
    "hook": Case(module="torch", variables={}),
}
RELINKED = {"relinked": Case(module="torch", variables={"FLAGOS_HOOK": "0"})}


@dataclass(frozen=True, kw_only=True)
class Taken:
    """Seconds of one import."""

    wall: float
    cpu: float


def measure(python: Path, case: Case, directory: str) -> Taken:
    """Return what the import takes in a new interpreter; its failure is ours."""
    done = subprocess.run(
        [str(python), "-c", _PROGRAM.format(case.module)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=directory,
        env={**os.environ, **case.variables},
    )
    wall, cpu = map(float, done.stdout.split())
    return Taken(wall=wall, cpu=cpu)


def rounds(python: Path, count: int, *, relink: bool) -> dict[str, list[Taken]]:
    """Return the times of `count` interleaved rounds, after one that fills the page cache.

    A relinked torch is relinked and restored in each round, outside of the measured time.
    """
    cases = {**CASES, **(RELINKED if relink else {})}
    taken: dict[str, list[Taken]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(count + 1):
            for name, case in cases.items():
                if name in RELINKED:
                    change(python, "relink")
                try:
                    time = measure(python, case, directory)
                finally:
                    if name in RELINKED:
                        change(python, "restore")
                if number:
                    taken[name].append(time)
    return taken


def starts(python: Path, count: int) -> list[float]:
    """Return the seconds that an interpreter takes for the wheel's .pth file, in `count` interpreters."""
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = subprocess.run([str(python), "-c", find], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    command = [str(python), "-IS", "-c", _START.format(folder=folder)]
    return [float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout) for _ in range(count)]


def change(python: Path, command: str) -> None:
    """Relink or restore the environment's torch."""
    subprocess.run([str(python), "-m", "torch_fl", command], check=True, stdout=subprocess.DEVNULL)


def show(taken: dict[str, list[Taken]]) -> None:
    """Print the table."""
    print(f"{'import':<10} {'median s':>9} {'min s':>9} {'max s':>9} {'ratio':>7} {'cpu s':>9} {'cpu ratio':>10}")
    wall = {name: [time.wall for time in times] for name, times in taken.items()}
    cpu = {name: statistics.median(time.cpu for time in times) for name, times in taken.items()}
    base = statistics.median(wall[STOCK])
    for name, times in wall.items():
        middle = statistics.median(times)
        print(
            f"{name:<10} {middle:9.3f} {min(times):9.3f} {max(times):9.3f} {middle / base:6.3f}x "
            f"{cpu[name]:9.3f} {cpu[name] / cpu[STOCK]:9.3f}x"
        )


def main() -> int:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", type=Path, help="interpreter of the environment with torch and torch_fl")
    parser.add_argument("--rounds", type=int, default=20, help="timed rounds (default: 20)")
    parser.add_argument("--relink", action="store_true", help="relink the environment's torch for the last case")
    parser.add_argument("--json", action="store_true", help="seconds of every round, for machines")
    args = parser.parse_args()
    # The link in a virtual environment must not be resolved: it is what makes it that environment.
    taken = rounds(args.python.absolute(), args.rounds, relink=args.relink)
    start = starts(args.python.absolute(), args.rounds * STARTS)
    if args.json:
        seconds = {name: [vars(time) for time in times] for name, times in taken.items()}
        print(json.dumps({"schema": 3, "seconds": seconds, "start": start}, sort_keys=True))
        return 0
    show(taken)
    middle, most = statistics.median(start) * 1e3, max(start) * 1e3
    print(f"interpreter start without torch: +{middle:.3f} ms, at most {most:.3f} ms")
    if not args.relink:
        print("relinked: not measured; --relink relinks this environment's torch for it")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
