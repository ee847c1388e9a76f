"""Doctor's look at the devices, through libflagos in a child process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING

from torch_fl_boot.report import Finding, Severity
from torch_fl_boot.typed import ShapeError, load_json, read_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch_fl_boot.doctor_install import Installation

# A driver's first start may take long; one that needs longer than this hangs.
PROBE_SECONDS = 120
_PROBE = Path(__file__).with_name("doctor_probe.py")
_TAIL = 400


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device as the vendor's runtime describes it; sizes in bytes."""

    index: int
    name: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, kw_only=True)
class Devices:
    """All devices; `error` holds the words of what kept the rest from being asked."""

    devices: tuple[Device, ...]
    error: str


def ask_devices(installation: Installation, libraries: Sequence[str], environ: Mapping[str, str]) -> Devices:
    """Ask libflagos for the devices; `libraries` are the runtime's sonames or paths, in order of preference."""
    library = installation.package / "lib" / "libflagos.so"
    command: list[str | Path] = [
        sys.executable,
        "-I",
        "-S",
        _PROBE,
        library,
        installation.build.runtime_prefix,
        *libraries,
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, env=environ, timeout=PROBE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Devices(devices=(), error=f"the device runtime gave no answer within {PROBE_SECONDS} s")
    except OSError as err:
        return Devices(devices=(), error=f"{sys.executable} could not be started to ask for them: {err.strerror}")
    if done.returncode:
        return Devices(devices=(), error=_ended(done.returncode, done.stderr))
    try:
        return read_record(Devices, load_json(done.stdout.splitlines()[-1]))
    except (ShapeError, IndexError):
        return Devices(devices=(), error=f"the device runtime printed {json.dumps(done.stdout[-_TAIL:])}")


def _ended(code: int, words: str) -> str:
    # Signals of the real-time range have no names.
    names = {signal.value: signal.name for signal in Signals}
    how = f"signal {names.get(-code, -code)}" if code < 0 else f"exit status {code}"
    return f"the process that asked for the devices ended with {how}: {words[-_TAIL:].strip() or '(no words)'}"


def check_devices(found: Devices, installation: Installation) -> Iterator[Finding]:
    """Yield what is wrong with the devices; a machine without any may still be meant to have none."""
    runtime = ", ".join(installation.build.runtime_libraries) or "the device runtime"
    if found.error:
        hint = "check that the driver is loaded and that this user may use it, with the vendor's own tool"
        yield _finding("R040", Severity.WARNING, runtime, found.error, hint)
    elif not found.devices:
        hint = "check the device, its permissions, and the variables that hide devices; CPU tensors work without"
        yield _finding("R041", Severity.WARNING, runtime, "0 devices", hint)


def _finding(code: str, severity: Severity, where: str, found: str, hint: str) -> Finding:
    return Finding(code=code, severity=severity, where=where, found=found, expected="at least one device", hint=hint)
