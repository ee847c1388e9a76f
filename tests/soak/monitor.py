"""Processes that never heard of torch_fl and import torch again and again, and what core each of them got."""

from __future__ import annotations

import json
import os
import select
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CORE = ("libc10.so", "libshm.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so")
_TIMEOUT = 300.0


@dataclass
class Tally:
    """How many imports ended on which core; `bad` holds one text for each that failed or got a mixture."""

    stock: int = 0
    bundle: int = 0
    bad: list[str] = field(default_factory=list)


def origins(maps: str) -> dict[str, str]:
    """Return for each core library in the text of a maps file the folder that it was taken from: torch or torch_fl."""
    found: dict[str, set[str]] = {}
    for line in maps.splitlines():
        path = line.partition("/")[2].removesuffix(" (deleted)")
        name = path.rpartition("/")[2]
        if name in CORE:
            found.setdefault(name, set()).add("torch_fl" if "/torch_fl/" in path else "torch")
    return {name: "+".join(sorted(homes)) for name, homes in found.items()}


def import_torch(site: Path, tally: Tally) -> None:
    """Import torch in a forked child, and count what it got. Never call this where torch is loaded."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _child(site, writer)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], _TIMEOUT)
    with os.fdopen(reader) as stream:
        said = stream.read() if ready else json.dumps({"error": f"no answer within {_TIMEOUT:.0f} s"})
    os.waitpid(child, 0)
    _count(json.loads(said or '{"error": "the process died"}'), tally)


def _child(site: Path, writer: int) -> None:
    answer: dict[str, object]
    try:
        sys.path.insert(0, str(site))
        __import__("torch")
        with open("/proc/self/maps", encoding="utf-8") as stream:  # noqa: PTH123 - pathlib is slower, and time matters
            answer = {"origins": origins(stream.read())}
    except BaseException:  # noqa: BLE001 - whatever it is, the parent counts it
        answer = {"error": traceback.format_exc()}
    os.write(writer, json.dumps(answer).encode())
    os._exit(0)


def _count(said: dict[str, object], tally: Tally) -> None:
    found = said.get("origins")
    if not isinstance(found, dict):
        tally.bad.append(f"not importable: {said['error']}")
    elif set(found.values()) == {"torch"} and len(found) >= len(CORE) - 1:
        tally.stock += 1
    elif set(found.values()) == {"torch_fl"} and len(found) >= len(CORE) - 1:
        tally.bundle += 1
    else:
        tally.bad.append(f"mixed: {found}")


class Monitors:
    """Several processes that import torch without a pause, until asked for their tallies."""

    def __init__(self, site: Path, count: int) -> None:
        self._running = [_start(site) for _ in range(count)]

    def stop(self) -> Tally:
        """End them, and return the sum of what they saw."""
        total = Tally()
        for _, stop, _ in self._running:
            os.close(stop)
        for child, _, result in self._running:
            with os.fdopen(result) as stream:
                said = json.load(stream)
            os.waitpid(child, 0)
            total.stock += said["stock"]
            total.bundle += said["bundle"]
            total.bad += said["bad"]
        return total


def _start(site: Path) -> tuple[int, int, int]:
    waiting, stop = os.pipe()
    result, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(waiting)
        os.close(writer)
        return child, stop, result
    os.close(stop)
    os.close(result)
    tally = Tally()
    while not select.select([waiting], [], [], 0)[0]:
        import_torch(site, tally)
        time.sleep(0.001)
    os.write(writer, json.dumps(vars(tally)).encode())
    os._exit(0)
