"""Kills relink and restore at random points while others import torch: `python -m tests.soak.kills --count 500`.

Half of the kills hit a random line of the code, so that every step is hit; half come at a random time. After each, a
fresh process must import torch on one core. Then the state is completed or undone by one of the three ways there are
(an import of torch_fl, relink, restore) and everything is compared with what it was.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.soak.monitor import Monitors, Tally, import_torch
from torch_fl_boot.manifest import read_build_record, read_manifest
from torch_fl_boot.relink import Condition, relink, restore, settle, state
from torch_fl_boot.relink.files import describe
from torch_fl_boot.stock import StockTorch, read_version

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_CODE = str(Path("torch_fl_boot") / "relink")


@dataclass
class Report:
    """What a run found; `problems` must be empty."""

    kills: dict[str, int] = field(default_factory=lambda: {"relink": 0, "restore": 0})
    finished: int = 0
    tally: Tally = field(default_factory=Tally)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Victim:
    """A site-packages directory with torch and torch_fl, and the operations on it."""

    def __init__(self, site: Path) -> None:
        self.site, self.torch = site, site / "torch"
        self.before = snapshot(site)

    def relink(self) -> None:
        package = self.site / "torch_fl"
        manifest = read_manifest(package, read_build_record(package))
        assert manifest is not None
        stock = StockTorch(package=self.torch, version=read_version(self.torch) or "")
        relink(manifest, package, stock, notify=_nothing)

    def restore(self) -> None:
        restore(self.torch, notify=_nothing)

    def settle(self) -> None:
        settle(self.torch, notify=_nothing)

    def faults(self) -> list[str]:
        """Compare with the beginning: everything where torch is stock again, else the originals in the backup."""
        found = state(self.torch)
        if found.condition is Condition.STOCK:
            now = snapshot(self.site)
            return [f"{name}: {self.before.get(name)} became {now.get(name)}" for name in differing(self.before, now)]
        if found.condition is not Condition.RELINKED or found.journal is None:
            return [f"the state is {found.condition.value}: {found.problems}"]
        return [
            f"original of {change.name} is lost"
            for change in found.journal.changes
            if change.original is not None
            and describe(self.torch / "lib/_orig_backup" / change.name) != self.before[f"torch/lib/{change.name}"]
        ]


def _nothing(_: str) -> None:
    pass


def snapshot(site: Path) -> dict[str, Any]:
    """Return what every file is that relink may touch: content, mode, time, text of links."""
    folders = (site, site / "torch/lib", *site.glob("torch-*.dist-info"))
    files = [path for folder in folders for path in folder.iterdir() if path.is_symlink() or path.is_file()]
    found: dict[str, Any] = {str(path.relative_to(site)): describe(path) for path in files}
    lib = site / "torch/lib"
    return found | {f"torch/lib/{path.name}/": "directory" for path in lib.iterdir() if path.is_dir()}


def differing(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the names that are not the same in both."""
    return [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]


def run_in_child(work: Callable[[], None], *, stop_after: float | None = None, stop_at_line: int | None = None) -> bool:
    """Do the work in a forked process, killed after so many seconds or lines of code; return whether it was killed."""
    child = os.fork()
    if child == 0:
        if stop_at_line is not None:
            _kill_at_line(stop_at_line)
        try:
            work()
        except BaseException as err:  # noqa: BLE001 - shown, and told by the exit code
            sys.stderr.write(f"{type(err).__name__}: {err}\n")
            os._exit(1)
        os._exit(0)
    if stop_after is not None:
        time.sleep(stop_after)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return True
    if os.WEXITSTATUS(status):
        raise RuntimeError("the operation was refused, see above")
    return False


def _kill_at_line(number: int) -> None:
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if _CODE not in frame.f_code.co_filename:
            return None
        left -= event == "line"
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def count_lines(work: Callable[[], object]) -> int:
    """Return how many lines of relink's code the work runs, here in this process."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace if _CODE in frame.f_code.co_filename else None

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return lines


def soak(site: Path, *, count: int, monitors: int, seed: int) -> Report:
    """Kill each of both operations `count` times, and report."""
    victim, report, chance = Victim(site), Report(), random.Random(seed)  # noqa: S311 - a repeatable choice, no secret
    lines, seconds = {}, {}
    for name, work in (("relink", victim.relink), ("restore", victim.restore)):
        start = time.monotonic()
        lines[name] = count_lines(work)
        seconds[name] = time.monotonic() - start
    begin, watching = time.monotonic(), Monitors(site, monitors)
    try:
        while min(report.kills.values()) < count and not report.problems:
            name = "relink" if state(victim.torch).condition is Condition.STOCK else "restore"
            stop = _stop(chance, lines[name], seconds[name])
            killed = run_in_child(getattr(victim, name), **stop)
            report.kills[name] += killed
            report.finished += not killed
            import_torch(site, report.tally)
            report.problems += report.tally.bad
            _put_in_order(victim, chance)
            if sum(report.kills.values()) % 100 == 0:
                print(report.kills, f"{time.monotonic() - begin:.0f} s", flush=True)
            report.problems += [f"after {name}, {stop}: {fault}" for fault in victim.faults()]
    finally:
        seen = watching.stop()
    victim.restore()
    report.problems += [*victim.faults(), *seen.bad]
    report.tally.stock += seen.stock
    report.tally.bundle += seen.bundle
    report.seconds = time.monotonic() - begin
    return report


def _stop(chance: random.Random, lines: int, seconds: float) -> dict[str, Any]:
    if chance.random() < 0.5:
        return {"stop_at_line": chance.randint(1, lines)}
    return {"stop_after": chance.uniform(0, seconds * 1.2)}


def _put_in_order(victim: Victim, chance: random.Random) -> None:
    """Complete or undo, or be killed at that as well, as often as it takes."""
    while state(victim.torch).condition is Condition.UNFINISHED:
        run_in_child(*chance.choices((victim.settle, victim.relink, victim.restore), weights=(2, 1, 3)))


def main() -> int:
    """Run with the options; 0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="kills of each operation")
    parser.add_argument("--monitors", type=int, default=2, help="processes that import torch all the while")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--site", type=Path, help="site-packages with the real torch and torch_fl (default: a fake one)"
    )
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="torch_fl-kills-"))
    try:
        report = soak(options.site or _fake(scratch), count=options.count, monitors=options.monitors, seed=options.seed)
    finally:
        shutil.rmtree(scratch)
    print(f"kills: {report.kills}; operations that ended first: {report.finished}; {report.seconds:.0f} s")
    print(f"imports on stock's core {report.tally.stock}, on the bundle's {report.tally.bundle}")
    print(f"problems: {len(report.problems)}", *report.problems[:20], sep="\n")
    return 1 if report.problems else 0


def _fake(scratch: Path) -> Path:
    from tests.support.fake_torch import complete_site  # noqa: PLC0415 - needs the plugin's sources, a real site does not

    site = complete_site(scratch)
    site.write_record()
    return site.root


if __name__ == "__main__":
    sys.exit(main())
