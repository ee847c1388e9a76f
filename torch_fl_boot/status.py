"""The command `status`: which state holds, told from the records, file sizes and the environment; reads no bundle."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch_fl_boot.doctor_install import check_files, check_first, check_proc, check_versions, read_installation
from torch_fl_boot.errors import FlagosImportError
from torch_fl_boot.hook_import import is_installed, is_off
from torch_fl_boot.info import STOCK_CORE, version_of
from torch_fl_boot.plan import RELINK, choose_strategy
from torch_fl_boot.relink import Condition
from torch_fl_boot.relink import state as relink_state
from torch_fl_boot.report import Finding, Severity, has_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch_fl_boot.doctor_install import Installation
    from torch_fl_boot.stock import StockTorch

PLAIN, RELINK_PENDING, UNKNOWN = "plain build", "relink asked for", "unknown"
HOOK_ON, HOOK_OFF, HOOK_ABSENT = "on", "off", "absent"
_VARIABLES = ("GEMS_VENDOR", "LD_LIBRARY_PATH", "LD_PRELOAD", "TORCH_DEVICE_BACKEND_AUTOLOAD")
_OWN_VARIABLES = "FLAGOS_"
_RESTORE = "run `python -m torch_fl restore`, and `python -m torch_fl relink` after it where that is wanted"
# Torch works in an unfinished or stale state; with links that lead nowhere it does not.
_BROKEN = {
    Condition.UNFINISHED: Severity.WARNING,
    Condition.STALE: Severity.WARNING,
    Condition.DANGLING: Severity.ERROR,
}


@dataclass(frozen=True, kw_only=True)
class Status:
    """What is installed, and how a process that imports torch now would run; texts are empty where nothing is known.

    `usable` means that no problem is an error. `state` is how the core gets in front of stock torch: "preload", "relink
    asked for" (the next import does it), the condition of a torch that was relinked ("relinked", "unfinished", "stale",
    "dangling"), "plain build", or "unknown", where the records or the variables do not tell.
    `hook` is "on", "off" (FLAGOS_HOOK=0) or "absent" (this interpreter processed no .pth file of the wheel).
    `bundle_bytes` and `bundle_files` describe the manifest; `variables` are those that are set and have an effect.
    """

    usable: bool
    state: str
    hook: str
    backend: str
    core: str
    forged: bool
    version: str
    package: str
    vendor_torch: str
    sdk_version: str
    torch: str
    torch_package: str
    python: str
    executable: str
    bundle: str
    bundle_files: int
    bundle_bytes: int
    variables: dict[str, str]
    problems: tuple[Finding, ...]

    def lines(self) -> Iterator[str]:
        """Yield the status as text."""
        yield f"state      {self.state}, hook {self.hook}"
        yield f"usable     {'yes' if self.usable else 'no'}"
        vendor = f", vendor torch {self.vendor_torch}" if self.vendor_torch else ""
        built = f", SDK {self.sdk_version}" if self.sdk_version else ""
        label = " (forged)" if self.forged else ""
        yield f"backend    {self.backend or 'unknown'}{label}, core {self.core or 'unknown'}{vendor}{built}"
        yield f"torch_fl   {self.version or 'unknown'} in {self.package}"
        yield f"torch      {self.torch or 'none'}{f' in {self.torch_package}' if self.torch else ''}"
        yield f"python     {self.python} at {self.executable}"
        if self.bundle:
            yield f"bundle     {self.bundle_files} files, {self.bundle_bytes / 1e6:.1f} MB in {self.bundle}"
        yield from (f"variable   {name}={value}" for name, value in self.variables.items())
        for problem in self.problems:
            yield from problem.lines()

    def without_problems(self) -> Status:
        """Return the same for an answer that lists the findings itself."""
        return replace(self, problems=())


def variables_in_effect(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the set variables that change how torch and torch_fl start."""
    return {
        name: value for name, value in sorted(environ.items()) if name in _VARIABLES or name.startswith(_OWN_VARIABLES)
    }


def hook_state(environ: Mapping[str, str]) -> str:
    """Return whether plain `import torch` would run on the bundle in an interpreter started like this one."""
    if not is_installed():
        return HOOK_ABSENT
    return HOOK_OFF if is_off(environ) else HOOK_ON


def read_status(package: Path, environ: Mapping[str, str]) -> Status:
    """Look at what is installed, without reading the bundled files beyond their headers."""
    installation, found = read_installation(package)
    return status_of(package, installation, (*found, *_cheap_problems(installation, environ)), environ)


def _cheap_problems(installation: Installation | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    if installation is not None:
        yield from check_versions(installation)
        yield from check_proc()
        yield from check_strategy(installation, environ)
        yield from check_files(installation)
        yield from check_relink(installation)
        yield from check_first(installation)


def check_strategy(installation: Installation, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is wrong with FLAGOS_CORE."""
    try:
        choose_strategy(environ, installation.manifest)
    except FlagosImportError as err:
        yield Finding(
            code="R006",
            severity=Severity.ERROR,
            where="FLAGOS_CORE",
            found=err.what,
            expected="a strategy that this version knows, or no such variable",
            hint=err.hint,
        )


def check_relink(installation: Installation) -> Iterator[Finding]:
    """Yield what is wrong with a torch/lib that was relinked."""
    stock = installation.stock
    if stock is None:
        return
    try:
        found = relink_state(stock.package)
    except FlagosImportError as err:
        yield _relink_finding(stock, Severity.ERROR, err.what, err.hint)
        return
    if found.condition in _BROKEN:
        yield _relink_finding(stock, _BROKEN[found.condition], "; ".join(found.problems), _RESTORE)
    elif found.journal is not None and found.journal.backend != installation.build.backend:
        what = f"relinked to the bundle of backend {found.journal.backend}"
        yield _relink_finding(stock, Severity.ERROR, what, _RESTORE)


def _relink_finding(stock: StockTorch, severity: Severity, found: str, hint: str) -> Finding:
    expected = "the files of stock torch, or links to this wheel's bundle"
    return Finding(code="R060", severity=severity, where=str(stock.lib), found=found, expected=expected, hint=hint)


def status_of(
    package: Path, installation: Installation | None, problems: tuple[Finding, ...], environ: Mapping[str, str]
) -> Status:
    """Put together what was found."""
    build = installation.build if installation is not None else None
    manifest = installation.manifest if installation is not None else None
    stock = installation.stock if installation is not None else None
    files = manifest.files if manifest is not None else ()
    usable = not has_errors(problems)
    return Status(
        usable=usable,
        state=_state(installation, environ),
        hook=hook_state(environ),
        backend=build.backend if build is not None else "",
        core=manifest.core if manifest is not None else STOCK_CORE if build is not None else "",
        forged=manifest is not None and manifest.forged,
        version=version_of(build, manifest) if build is not None else "",
        package=str(package),
        vendor_torch=manifest.vendor_torch if manifest is not None else "",
        sdk_version=manifest.sdk_version if manifest is not None else "",
        torch=stock.version if stock is not None else "",
        torch_package=str(stock.package) if stock is not None else "",
        python=platform.python_version(),
        executable=sys.executable,
        bundle=str(installation.bundle) if installation is not None and manifest is not None else "",
        bundle_files=len(files),
        bundle_bytes=sum(file.size for file in files),
        variables=variables_in_effect(environ),
        problems=problems,
    )


def _state(installation: Installation | None, environ: Mapping[str, str]) -> str:
    if installation is None:
        return UNKNOWN
    if installation.manifest is None:
        return PLAIN
    stock = installation.stock
    try:
        condition = relink_state(stock.package).condition if stock is not None else Condition.STOCK
        strategy = choose_strategy(environ, installation.manifest)
    except FlagosImportError:
        return UNKNOWN
    if condition is not Condition.STOCK:
        return str(condition.value)
    return RELINK_PENDING if strategy == RELINK else strategy
