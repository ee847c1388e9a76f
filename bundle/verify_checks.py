"""The single checks of a verification, each over an environment that holds the installed wheel."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bundle.errors import RefusedError
from bundle.ldd import complaints, resolve_libraries
from bundle.proc import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bundle.manifest import Manifest
    from bundle.ui import Reporter

SYSTEM_FOLDERS = (Path("/lib"), Path("/lib64"), Path("/usr/lib"), Path("/usr/lib64"))
MAX_RESTARTS = 16
_PROBE = """
import json, torch_fl, torch
from torch_fl_boot.maps import mapped_libraries
print(json.dumps({
    "devices": torch.flagos.device_count(),
    "torch": torch.__version__,
    "strategy": torch_fl.bundle().strategy,
    "maps": {name: [str(path) for path in paths] for name, paths in mapped_libraries().items()},
}))
"""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """An environment that holds the wheel: its interpreter, the package, and what its processes are started with."""

    python: Path
    package: Path
    manifest: Manifest
    environ: Mapping[str, str]
    folder: Path


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a process that imported the plugin says; `maps` holds every mapped library by file name."""

    devices: int
    torch: str
    strategy: str
    maps: Mapping[str, tuple[str, ...]]


def probe(installed: Installed) -> Facts:
    """Import the plugin in a fresh process.

    Raises:
        ToolError: the import failed; its own words are quoted.
    """
    done = run([installed.python, "-c", _PROBE], env=installed.environ, cwd=installed.folder)
    said = json.loads(done.stdout.splitlines()[-1])
    maps = {name: tuple(paths) for name, paths in said.pop("maps").items()}
    return Facts(maps=maps, **said)


def check_libraries(installed: Installed) -> tuple[str, ...]:
    """Run ldd without the driver's folders: whatever is not found must be the driver's."""
    bare = {key: value for key, value in installed.environ.items() if key != "LD_LIBRARY_PATH"}
    manifest = installed.manifest
    roots = (installed.package.parent, *SYSTEM_FOLDERS, *map(Path, manifest.driver_dirs))
    return complaints(resolve_libraries(installed.package, bare), allowed=roots, drivers=manifest.driver_sonames)


def check_doctor(installed: Installed) -> tuple[str, ...]:
    """Return the errors that `python -m torch_fl doctor` finds; warnings say that a machine has no devices, say."""
    command: list[str | Path] = [installed.python, "-m", "torch_fl", "doctor", "--json"]
    done = run(command, env=installed.environ, cwd=installed.folder, check=False)
    return doctor_errors(done.stdout, done.stderr)


def doctor_errors(answer: str, words: str) -> tuple[str, ...]:
    """Read the doctor's answer; `words`, its stderr, become the problem where there is none."""
    try:
        findings = json.loads(answer)["findings"]
    except (ValueError, LookupError, TypeError):
        return (f"doctor: no answer: {(words or answer)[-600:].strip()}",)
    return tuple(
        f"doctor: {item['code']} {item['where']}: {item['found']}" for item in findings if item["severity"] == "error"
    )


def check_origins(facts: Facts, installed: Installed) -> tuple[str, ...]:
    """Return torch libraries that are mapped twice, or from elsewhere than bundle or (for a stock core) stock torch."""
    package, manifest = installed.package, installed.manifest
    bundled = {file.name for file in manifest.files}
    wrong = []
    for name, paths in facts.maps.items():
        # torch opens its own libtorch_global_deps by path; it holds no torch symbol.
        if not name.startswith(("libtorch", "libc10")) or name == "libtorch_global_deps.so":
            continue
        if name in bundled:
            expected = package / manifest.bundle_dir / name
        elif (package / "lib" / name).exists():
            expected = package / "lib" / name
        else:
            expected = package.parent / "torch" / "lib" / name
        if [Path(path).resolve() for path in paths] != [expected.resolve()]:
            wrong.append(f"{name} is mapped from {', '.join(paths)}; expected {expected}")
    if not any(name.startswith("libtorch_cpu") for name in facts.maps):
        wrong.append("no libtorch_cpu.so is mapped at all")
    return tuple(wrong)


def run_suite(installed: Installed, suite: Path, arguments: Sequence[str], *, workers: int, ui: Reporter) -> Path:
    """Copy the suite beside the environment, run it there, and return the report's path.

    Raises:
        RefusedError: pytest ended before it wrote a report; its last words are quoted.
    """
    copy = installed.folder / "suite"
    shutil.copytree(suite, copy, ignore=shutil.ignore_patterns("__pycache__"))
    report = installed.folder / "report.json"
    command: list[str | Path] = [installed.python, "-m", "pytest", "-p", "reporting", "--report-json", report, "-q"]
    command += ["-n", str(workers), "--max-worker-restart", str(MAX_RESTARTS), "--rootdir", copy, *arguments]
    # Started as a module from the suite's own folder, so that the plugin is found without PYTHONPATH.
    done = run(command, ui=ui, env=installed.environ, cwd=copy, check=False, on_line=ui.progress)
    if not report.is_file():
        raise RefusedError(
            f"pytest exited with {done.returncode} and left no report; its last words:\n{done.stdout[-4000:]}",
            hint="run the suite by hand in an environment with the wheel: python -m pytest tests/integration",
        )
    return report


def measure_accuracy(installed: Installed, *, mm_tolerance: float) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the largest differences against the CPU by operator, and what exceeds its tolerance."""
    script = installed.folder / "suite" / "accuracy.py"
    command: list[str | Path] = [installed.python, script, "--mm-tolerance", str(mm_tolerance)]
    done = run(command, env=installed.environ, cwd=installed.folder, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    values: dict[str, float] = json.loads(lines[-1]) if lines else {}
    wrong = () if done.returncode == 0 else (f"accuracy: exit {done.returncode}: {done.stdout[-600:].strip()}",)
    return values, wrong
