"""The command `doctor`: everything that can be checked without importing torch, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_fl_boot.doctor_devices import Device, Devices, ask_devices, check_devices
from torch_fl_boot.doctor_install import (
    check_files,
    check_first,
    check_hashes,
    check_proc,
    check_versions,
    read_installation,
)
from torch_fl_boot.doctor_load import LoadView, Need, check_load, view_load
from torch_fl_boot.errors import FlagosImportError
from torch_fl_boot.plugins import GROUP, other_plugins
from torch_fl_boot.report import Finding, Severity, has_errors
from torch_fl_boot.resolve_settings import settings_of
from torch_fl_boot.status import (
    HOOK_ABSENT,
    HOOK_OFF,
    HOOK_ON,
    Status,
    check_relink,
    check_strategy,
    hook_state,
    status_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch_fl_boot.doctor_install import Installation, Progress

_HOOK_HINTS = {
    HOOK_OFF: "unset FLAGOS_HOOK, or put `import torch_fl` before `import torch`",
    HOOK_ABSENT: "install the wheel into site-packages, start Python without -S, or put `import torch_fl` first",
}

# Another machine, no /proc, files that are damaged or unreadable.
_NO_VIEW = {"R003", "R007", "R010", "R012"}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The answer of `doctor`. `hashed` tells whether the bundle's bytes were read; `needs` is every DT_NEEDED entry.

    Findings are in the order of the checks, and `status.problems` is empty here: they are its problems.
    """

    ok: bool
    hashed: bool
    status: Status
    findings: tuple[Finding, ...]
    needs: tuple[Need, ...]
    devices: tuple[Device, ...]

    def lines(self, *, libraries: bool) -> Iterator[str]:
        """Yield the diagnosis as text; `libraries` adds a line per DT_NEEDED entry."""
        yield from self.status.lines()
        for device in self.devices:
            free, total = device.free_bytes / 1e9, device.total_bytes / 1e9
            yield f"device {device.index}   {device.name}, {free:.1f} of {total:.1f} GB free"
        if libraries:
            for need in self.needs:
                where = f"{need.path} ({need.rule})" if need.path is not None else need.rule
                yield f"{need.library.name} needs {need.soname}: {where}"
        for finding in self.findings:
            yield from finding.lines()
        errors = sum(finding.severity is Severity.ERROR for finding in self.findings)
        hashes = "" if self.hashed else "; sha256 not checked"
        yield f"{errors} errors, {len(self.findings) - errors} other findings{hashes}"


def examine(package: Path, environ: Mapping[str, str], progress: Progress | None) -> Diagnosis:
    """Check the installation in `package`; without `progress` the bundle's bytes are not read."""
    installation, findings = read_installation(package)
    view, devices = None, Devices(devices=(), error="")
    if installation is not None:
        findings += (*check_versions(installation), *check_strategy(installation, environ))
        findings += (*check_proc(), *check_files(installation), *check_relink(installation))
        findings += tuple(check_hashes(installation, progress)) if progress is not None else ()
        view = _view(installation, findings, environ)
        findings += tuple(check_load(view)) if view is not None else ()
        devices = _devices(installation, view, findings, environ)
        findings += (*check_devices(devices, installation), *_surroundings(installation, environ))
    return Diagnosis(
        ok=not has_errors(findings),
        hashed=installation is not None and progress is not None,
        status=status_of(package, installation, findings, environ).without_problems(),
        findings=findings,
        needs=view.needs() if view is not None else (),
        devices=devices.devices,
    )


def _view(installation: Installation, findings: tuple[Finding, ...], environ: Mapping[str, str]) -> LoadView | None:
    """Simulate the load; None where files are missing or damaged, whose tables would mislead, or cannot run here."""
    if installation.stock is None or any(finding.code in _NO_VIEW for finding in findings):
        return None
    return view_load(installation, installation.stock, settings_of(environ), environ)


def _devices(
    installation: Installation, view: LoadView | None, findings: tuple[Finding, ...], environ: Mapping[str, str]
) -> Devices:
    libraries = view.runtime_libraries() if view is not None else installation.build.runtime_libraries
    missing = [
        finding.where for finding in findings if finding.code == "R020" and finding.severity is not Severity.NOTE
    ]
    if missing:
        return Devices(devices=(), error=f"not asked, since the driver stack lacks {', '.join(missing)}")
    return ask_devices(installation, libraries, environ)


def _surroundings(installation: Installation, environ: Mapping[str, str]) -> Iterator[Finding]:
    yield from check_first(installation)
    hook = hook_state(environ)
    if installation.manifest is not None and hook != HOOK_ON:
        yield Finding(
            code="R050",
            severity=Severity.NOTE,
            where="import hook",
            found=hook,
            expected=HOOK_ON,
            hint=_HOOK_HINTS[hook],
        )
    try:
        plugins = other_plugins()
    except FlagosImportError as err:
        plugins = ()
        expected = "entry points that can be read"
        yield Finding(
            code="R052", severity=Severity.ERROR, where=GROUP, found=err.what, expected=expected, hint=err.hint
        )
    for plugin in plugins:
        yield Finding(
            code="R051",
            severity=Severity.WARNING,
            where=GROUP,
            found=plugin,
            expected="no other plugin for PrivateUse1, of which PyTorch has one",
            hint="uninstall it, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import the plugin that is meant",
        )
