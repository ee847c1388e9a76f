"""expected.toml: what fails on purpose, by pattern of test id, with its reason and where it holds."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

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
