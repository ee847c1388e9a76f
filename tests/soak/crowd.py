"""First imports of torch_fl by 32 processes at once: `python -m tests.soak.crowd --rounds 100`.

Beside them, some processes import torch alone. All must succeed, each on one core: the importers of torch_fl on the
bundle's, the others on either.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.soak.kills import Victim
from tests.soak.monitor import CORE, origins
from torch_fl_boot.plan import CORE_VARIABLE, PRELOAD, RELINK
from torch_fl_boot.relink import Condition, state

if TYPE_CHECKING:
    from collections.abc import Sequence

PLAIN = 4
STRATEGIES = (PRELOAD, RELINK)


@dataclass
class Report:
    """How many processes of each kind did what they should, and a text for each that did not."""

    good: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


def crowd(site: Path, *, rounds: int, size: int = 32, strategies: Sequence[str] = STRATEGIES) -> Report:
    """Run so many rounds under each strategy, each from a stock torch; the first without bytecode files."""
    report, victim, start = Report(), Victim(site), time.monotonic()
    for strategy in strategies:
        report.good[strategy] = 0
        for cache in site.glob("torch_fl*/**/__pycache__"):
            shutil.rmtree(cache)
        for _ in range(rounds):
            _round(site, strategy, size, report)
            expected = Condition.RELINKED if strategy == RELINK else Condition.STOCK
            found = state(victim.torch)
            if found.condition is not expected:
                report.problems.append(f"{strategy}: the state is {found.condition.value}: {found.problems}")
            victim.restore()
            report.problems += victim.faults()
            print(report.good, f"{time.monotonic() - start:.0f} s, problems: {len(report.problems)}", flush=True)
    report.seconds = time.monotonic() - start
    return report


def _round(site: Path, strategy: str, size: int, report: Report) -> None:
    gate, opener = os.pipe()
    waiting = [_start(site, module, strategy, gate, opener) for module in ["torch_fl"] * size + ["torch"] * PLAIN]
    os.close(opener)
    for child, result, module in waiting:
        with os.fdopen(result) as stream:
            said = json.loads(stream.read() or '{"error": "the process died"}')
        os.waitpid(child, 0)
        allowed = [{"torch_fl"}] if module == "torch_fl" else [{"torch"}, {"torch_fl"}]
        if set(said.get("origins", {}).values()) in allowed:
            report.good[strategy] += 1
        else:
            report.problems.append(f"{strategy}, import {module}: {said}")
    os.close(gate)


def _start(site: Path, module: str, strategy: str, gate: int, opener: int) -> tuple[int, int, str]:
    result, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, result, module
    os.close(opener)
    try:
        os.read(gate, 1)  # returns when the parent, the last to hold the other end, closes it
        for name in [name for name in sys.modules if name.partition(".")[0] == "torch_fl_boot"]:
            del sys.modules[name]  # the parent's; the site has its own
        sys.path.insert(0, str(site))
        os.environ[CORE_VARIABLE] = strategy
        __import__(module)
        found = origins(Path("/proc/self/maps").read_text(encoding="utf-8"))
        answer = json.dumps({"origins" if len(found) == len(CORE) else "incomplete": found})
    except BaseException:  # noqa: BLE001 - whatever it is, the parent counts it
        answer = json.dumps({"error": traceback.format_exc()})
    os.write(writer, answer.encode())
    os._exit(0)


def main() -> int:
    """Run with the options; 0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="rounds under each strategy")
    parser.add_argument("--strategy", choices=STRATEGIES, help="this one alone (default: one after the other)")
    parser.add_argument("--size", type=int, default=32, help="processes at once")
    parser.add_argument(
        "--site", type=Path, help="site-packages with the real torch and torch_fl (default: a fake one)"
    )
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="torch_fl-crowd-"))
    try:
        site, strategies = options.site or _fake(scratch), [options.strategy] if options.strategy else STRATEGIES
        report = crowd(site, rounds=options.rounds, size=options.size, strategies=strategies)
    finally:
        shutil.rmtree(scratch)
    print(f"good: {report.good}; {report.seconds:.0f} s")
    print(f"problems: {len(report.problems)}", *report.problems[:20], sep="\n")
    return 1 if report.problems else 0


def _fake(scratch: Path) -> Path:
    from tests.support.fake_torch import complete_site  # noqa: PLC0415 - needs the plugin's sources

    return complete_site(scratch).root


if __name__ == "__main__":
    sys.exit(main())
