r"""What an operator call on flagos costs over the vendor's own, in C++, beside kernels that do next to nothing.

    python benchmarks/thin.py [--calls N] [--rounds N] [--json] [--no-arithmetic] [--cold] [--case NAME --device D]

Run where `torch_fl` is installed and its vendor's `cuda` works in the same process, as with the software device. The
kernels of `csrc/thin.cpp`, compiled on the spot by g++, take the places of the vendor's. Each round times the same
calls on both devices in turn, in one thread, by that thread's CPU time. The table gives medians in nanoseconds per
call, the median of the rounds' differences, which is the result, the difference of the fastest rounds, and the range
of differences. On real accelerators, whose memory the host cannot read, --no-arithmetic leaves out the kernels' eight
additions. With --cold, kernels also run through more code and memory than the first caches hold, as a launch does:
what is left of the call then loads its own again. With --case and --device, one case runs once, to count instructions,
or with --cache-sim=yes the pieces of code (I1mr) and of memory (D1mr) that had to be loaded:

    valgrind --tool=callgrind --instr-atstart=no [--cache-sim=yes --I1=32768,8,64 --D1=49152,12,64] \
      python benchmarks/thin.py --cold --case add --device flagos --calls 500 --library thin.so
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

import torch_fl  # noqa: F401 - registers the device, and must come before torch

# isort: split

import torch
from torch.utils import cpp_extension

DEVICES = ("cuda", "flagos")
CASES = (
    *("neg", "add", "add_", "add.out", "copy_", "addmm", "layer_norm"),
    *("cat of 2", "cat of 32", "empty", "view"),
)
SOURCE = Path(__file__).resolve().parent / "csrc" / "thin.cpp"


def compiled(library: Path, *, arithmetic: bool, cold: bool) -> ctypes.CDLL:
    """Compile the thin kernels against the running torch, unless done, and load them; they serve this whole process."""
    if not library.exists():
        compile_to(library)
    loaded = ctypes.CDLL(str(library))
    ctypes.c_bool.in_dll(loaded, "thin_arithmetic").value = arithmetic
    ctypes.c_bool.in_dll(loaded, "thin_cold").value = cold
    loaded.thin_time.restype = ctypes.c_double
    loaded.thin_time.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64]
    return loaded


def compile_to(library: Path) -> None:
    """Compile the thin kernels; what they link to is found by soname among what torch has already mapped."""
    includes = [f"-isystem{path}" for path in cpp_extension.include_paths()]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    options = ["-O2", "-DNDEBUG", "-std=c++20", "-shared", "-fPIC", abi]
    links = [f"-L{path}" for path in cpp_extension.library_paths()] + ["-ltorch_cpu", "-lc10"]
    subprocess.run(["g++", *options, *includes, str(SOURCE), "-o", str(library), *links], check=True)


def timed(library: ctypes.CDLL, case: str, device: str, calls: int) -> float:
    """Return nanoseconds per call.

    Raises:
        RuntimeError: the call failed; its own words are on stderr.
    """
    taken = float(library.thin_time(case.encode(), device.encode(), calls))
    if taken < 0:
        raise RuntimeError(f"the case {case!r} failed on {device}")
    return taken


def measure(library: ctypes.CDLL, calls: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return the times of every case and device, after one round that warms up."""
    times: dict[str, dict[str, list[float]]] = {case: {device: [] for device in DEVICES} for case in CASES}
    for number in range(rounds + 1):
        for case in CASES:
            for device in DEVICES:
                taken = timed(library, case, device, calls)
                if number:
                    times[case][device].append(taken)
    return times


def print_table(times: dict[str, dict[str, list[float]]]) -> None:
    """Print the table that the module's docstring explains."""
    print(f"{'case':12} {'cuda ns':>9} {'flagos ns':>9} {'over':>7} {'fastest':>8} {'min..max':>14}")
    for case, taken in times.items():
        cuda, flagos = (statistics.median(taken[device]) for device in DEVICES)
        differences = [there - here for here, there in zip(taken["cuda"], taken["flagos"], strict=True)]
        fastest = min(taken["flagos"]) - min(taken["cuda"])
        span = f"{min(differences):.0f}..{max(differences):.0f}"
        print(f"{case:12} {cuda:9.0f} {flagos:9.0f} {statistics.median(differences):+7.0f} {fastest:+8.0f} {span:>14}")


def main() -> None:
    """Measure and print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-arithmetic", action="store_true", help="let the kernels leave the device's memory alone")
    parser.add_argument("--cold", action="store_true", help="let the kernels fill the first caches, as launches do")
    parser.add_argument("--case", choices=CASES, help="run this case alone, once")
    parser.add_argument("--device", choices=DEVICES, default="flagos", help="where --case runs (default: flagos)")
    parser.add_argument("--library", type=Path, help="where the compiled kernels are kept for further runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(
            options.library or Path(folder, "thin.so"), arithmetic=not options.no_arithmetic, cold=options.cold
        )
    if options.case:
        print(f"{timed(library, options.case, options.device, options.calls):.0f} ns")
        return
    times = measure(library, options.calls, options.rounds)
    if options.json:
        print(json.dumps({"schema": 1, "nanoseconds": times}, sort_keys=True))
        return
    print_table(times)


if __name__ == "__main__":
    main()
