"""How fast a wheel is written: our writer against the standard library's zipfile, on files of your choice.

    python benchmarks/repack.py FILE...

Good input are the big libraries of a torch installation (torch/lib/*.so). All writers run in one process, one after
the other, over files that were read once before; the table gives time, rate, size, and each writer's time as a multiple
of ours. `repacked twice` tells whether two runs of a writer gave equal bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
import zipfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bundle.guard import guarded
from bundle.ui import Reporter
from bundle.wheelfile import Member, write_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DIST_INFO = "bench-1.dist-info"


def ours(target: Path, files: Sequence[Path]) -> None:
    """Write with the project's own writer, RECORD included."""
    members = [Member(name=path.name, size=path.stat().st_size, open=partial(_opened, path)) for path in files]
    write_wheel(target, members, dist_info=DIST_INFO)


def _opened(path: Path) -> BinaryIO:
    return path.open("rb")


def stdlib(target: Path, files: Sequence[Path], *, level: int) -> None:
    """Write with zipfile, hashing every file once as a RECORD needs it."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for path in files:
            digest = hashlib.sha256()
            with path.open("rb") as source, archive.open(path.name, "w", force_zip64=True) as sink:
                while chunk := source.read(1 << 20):
                    digest.update(chunk)
                    sink.write(chunk)


def measured(
    write: Callable[[Path, Sequence[Path]], None], target: Path, files: Sequence[Path]
) -> tuple[float, int, str]:
    """Return seconds, bytes written, and the sha256 of the archive."""
    start = time.perf_counter()
    write(target, files)
    seconds = time.perf_counter() - start
    digest = hashlib.sha256()
    with target.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    size = target.stat().st_size
    target.unlink()
    return seconds, size, digest.hexdigest()


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    files = [path for path in parser.parse_args().files if path.is_file()]
    total = sum(len(path.read_bytes()) for path in files)
    writers: dict[str, Callable[[Path, Sequence[Path]], None]] = {
        "ours (isa-l 2)": ours,
        "zipfile level 1": partial(stdlib, level=1),
        "zipfile level 6": partial(stdlib, level=6),
    }
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "bench-1-py3-none-any.whl")
        runs = {name: [measured(write, target, files) for _ in range(2)] for name, write in writers.items()}
    best = {name: min(run[0] for run in pair) for name, pair in runs.items()}
    rows = [
        [
            name,
            f"{best[name]:.2f}",
            f"{total / 1e6 / best[name]:.0f}",
            f"{pair[0][1] / 1e6:.1f}",
            f"{best[name] / best['ours (isa-l 2)']:.1f}x",
            "equal" if pair[0][2] == pair[1][2] else "differs",
        ]
        for name, pair in runs.items()
    ]
    ui = Reporter()
    ui.result(f"{len(files)} files, {total / 1e6:.1f} MB")
    ui.table(["writer", "s", "MB/s", "MB written", "of our time", "repacked twice"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main, Reporter()))
