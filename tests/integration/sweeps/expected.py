"""expected.toml: what fails on purpose, by pattern of test id, with its reason and where it holds."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from sweeps.selection import sweep_of

if TYPE_CHECKING:
    from collections.abc import Iterable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it where Python lacks tomllib

LIST = Path(__file__).with_name("expected.toml")
DEVICES = ("software", "real")
KEYS = {"tests", "reason", "device", "torch", "crashes"}


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What an entry's conditions are held against: the running torch's (major, minor), and the kind of device."""

    torch: tuple[int, int]
    software: bool


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Tests that fail for one reason. `crashes`: the process would die or hang, so the test is not run at all."""

    tests: tuple[str, ...]
    reason: str
    device: str | None = None
    torch: tuple[str, ...] = ()
    crashes: bool = False

    def holds_for(self, test: str, machine: Machine) -> bool:
        """Whether this test, on this machine, is expected to fail."""
        if self.device is not None and (self.device == "software") != machine.software:
            return False
        versions = tuple(f"{machine.torch[0]}.{machine.torch[1]}".split())
        if self.torch and not set(versions) & set(self.torch):
            return False
        return any(fnmatchcase(test, pattern) for pattern in self.tests)


def _entry(data: dict[str, Any], number: int) -> Entry:
    unknown = data.keys() - KEYS
    if unknown or not data.get("tests") or not data.get("reason") or data.get("device", "real") not in DEVICES:
        raise ValueError(
            f"{LIST.name}: entry {number} is not valid: {data!r}; expected tests and reason, and optionally device "
            f"({' or '.join(DEVICES)}), torch (a list such as ['2.12']) and crashes"
        )
    return Entry(**{**data, "tests": tuple(data["tests"]), "torch": tuple(data.get("torch", ()))})


def read_entries(path: Path = LIST) -> tuple[Entry, ...]:
    """Read the list.

    Raises:
        ValueError: an entry lacks its tests or reason, or has a key or device that does not exist.
    """
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return tuple(_entry(entry, number) for number, entry in enumerate(data.get("entry", []), 1))


def find_entry(entries: tuple[Entry, ...], test: str, machine: Machine) -> Entry | None:
    """Return the first entry that expects this test to fail, or None."""
    return next((entry for entry in entries if entry.holds_for(test, machine)), None)


def this_machine() -> Machine:
    """Describe this machine; a software device says so in its name."""
    major, minor = torch.__version__.split(".")[:2]
    software = torch.flagos.device_count() > 0 and "(software)" in torch.flagos.get_device_name(0)
    return Machine(torch=(int(major), int(minor)), software=software)


def mark_expected(items: Iterable[pytest.Item]) -> None:
    """Mark the tests that are expected to fail here; one that passes then fails the run."""
    entries, here = read_entries(), this_machine()
    for item in items:
        parameters = getattr(item, "callspec", None)
        if parameters is None:
            continue
        # Tests that are no sweeps go by the name of their file.
        kind = sweep_of(getattr(item, "function", None)) or item.path.stem.removeprefix("test_")
        entry = find_entry(entries, f"{kind}/{parameters.id}", here)
        if entry is not None:
            item.add_marker(pytest.mark.xfail(reason=entry.reason, strict=True, run=not entry.crashes))
