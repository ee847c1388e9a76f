"""Doctor's look at what the loader would do: every DT_NEEDED, copies that come first, symbols that are missing."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl_boot.elf import NotElfError
from torch_fl_boot.maps import canonical_name
from torch_fl_boot.paths import is_file
from torch_fl_boot.plan import CORE_NAMES, GLOBAL_DEPS, PreloadPlan, plan_preload
from torch_fl_boot.preload import stack_is_absent
from torch_fl_boot.report import Finding, Severity
from torch_fl_boot.resolve import running_program
from torch_fl_boot.resolve_plan import simulate, symbol_line, version_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch_fl_boot.doctor_install import Installation
    from torch_fl_boot.resolve import Resolution
    from torch_fl_boot.resolve_plan import Simulation
    from torch_fl_boot.resolve_settings import LoaderSettings
    from torch_fl_boot.stock import StockTorch

_OPENMP = "libgomp.so.1"
_BUNDLE_INCOMPLETE = "reinstall torch_fl, or add the directory of this library to LD_LIBRARY_PATH"


@dataclass(frozen=True, kw_only=True)
class Need:
    """One DT_NEEDED entry of a library of the wheel; `path` is None where the loader finds nothing."""

    library: Path
    soname: str
    path: Path | None
    rule: str


@dataclass(frozen=True, kw_only=True)
class LoadView:
    """The simulated load of an installation."""

    installation: Installation
    plan: PreloadPlan
    settings: LoaderSettings
    simulation: Simulation

    def needs(self) -> tuple[Need, ...]:
        """Return every DT_NEEDED of the wheel's libraries and where it resolves."""
        package = self.installation.package
        own = {folder.resolve() for folder in (package, package / "lib", self.installation.bundle)}
        skipped = (found for _, found in self.simulation.skipped)
        every = (*self.simulation.process.resolutions, *skipped)
        return tuple(
            Need(library=item.user, soname=item.soname, path=item.path, rule=item.rule)
            for item in every
            if item.user is not None and item.user.parent.resolve() in own
        )

    def runtime_libraries(self) -> tuple[str, ...]:
        """Return the device runtime's libraries, by path where the load brings them."""
        loaded = {item.library.soname: str(item.path) for item in self.simulation.process.loaded}
        return tuple(loaded.get(soname, soname) for soname in self.installation.build.runtime_libraries)


def view_load(
    installation: Installation, stock: StockTorch, settings: LoaderSettings, environ: Mapping[str, str]
) -> LoadView:
    """Simulate the preload, `import torch` and the plugin's own libraries."""
    plan = _plan(installation, stock, environ)
    torch = (stock.lib / GLOBAL_DEPS, *sorted(stock.package.glob("_C.*so")))
    extra = [path for path in (*torch, *installation.plugin) if is_file(path)]
    simulation = simulate(plan, settings, running_program(), extra)
    return LoadView(installation=installation, plan=plan, settings=settings, simulation=simulation)


def _plan(installation: Installation, stock: StockTorch, environ: Mapping[str, str]) -> PreloadPlan:
    if installation.manifest is not None:
        return plan_preload(installation.manifest, installation.bundle, stock, environ)
    return PreloadPlan(
        backend=installation.build.backend,
        borrowed=(),
        steps=(),
        origins={name: stock.lib / name for name in CORE_NAMES},
        global_deps=None,
        driver_sonames=(),
        requirements=(),
        sdk_version="",
    )


def check_load(view: LoadView) -> Iterator[Finding]:
    """Yield everything that is wrong with the load; symbols only where every library is found."""
    broken = list(_missing_libraries(view))
    yield from broken
    yield from _left_out(view)
    yield from _other_copies(view)
    yield from _on_library_path(view)
    yield from _openmp(view)
    if not broken:
        yield from _lacking(view)


def _missing_libraries(view: LoadView) -> Iterator[Finding]:
    absent = _stack_is_absent(view)
    users: dict[tuple[str, str], list[Resolution]] = {}
    for item in view.simulation.process.resolutions:
        if item.path is None or item.problem:
            users.setdefault((item.soname, item.problem), []).append(item)
    for (soname, problem), items in users.items():
        needed_by = ", ".join(dict.fromkeys(item.user.name for item in items if item.user)) or "the load itself"
        if problem:
            yield _error(
                "R022", str(items[0].path), f"{problem}; needed by {needed_by}", "a library", "replace this file"
            )
        elif view.plan.is_driver(soname):
            yield _driver_missing(view, soname, needed_by, absent=absent)
        else:
            expected = "in the bundle, in stock torch, or on this system"
            yield _error("R021", soname, f"nowhere; needed by {needed_by}", expected, _BUNDLE_INCOMPLETE)


def _error(code: str, where: str, found: str, expected: str, hint: str) -> Finding:
    return Finding(code=code, severity=Severity.ERROR, where=where, found=found, expected=expected, hint=hint)


def _stack_is_absent(view: LoadView) -> bool:
    """Whether the runtime would take this for a machine without the vendor's driver: torch then runs without flagos."""
    resolutions = (*view.simulation.process.resolutions, *(found for _, found in view.simulation.skipped))
    gone = {item.soname for item in resolutions if item.path is None}
    return stack_is_absent(view.plan, gone, needs_driver=False)


def _driver_missing(view: LoadView, soname: str, needed_by: str, *, absent: bool) -> Finding:
    manifest = view.installation.manifest
    places = dict.fromkeys((*view.settings.library_path, *(manifest.driver_dirs if manifest is not None else ())))
    finding = _error(
        "R020",
        soname,
        f"nowhere; needed by {needed_by}",
        f"in {', '.join((*places, 'the directories of ld.so.conf'))}",
        view.plan.driver_hint,
    )
    # A relinked torch cannot be imported at all then.
    return replace(finding, severity=Severity.WARNING) if absent and not view.plan.relinked else finding


def _left_out(view: LoadView) -> Iterator[Finding]:
    for step, lacking in view.simulation.skipped:
        yield Finding(
            code="R020",
            severity=Severity.NOTE,
            where=lacking.soname,
            found=f"nowhere; {step.path.name}, which needs it, is left out",
            expected="the driver, on a machine that has devices",
            hint=f"install the {view.plan.backend} driver, if this machine is meant to have devices",
        )


def _other_copies(view: LoadView) -> Iterator[Finding]:
    """Compare where each library of torch and of the wheel comes from with where it should."""
    expected = dict(view.plan.origins)
    expected |= {path.name: path for path in view.installation.bundle.glob("*.so*")}
    expected |= {path.name: path for path in (view.installation.package / "lib").glob("*.so")}
    for item in view.simulation.process.loaded:
        name = canonical_name(item.path.name)
        home = expected.get(name)
        if home is None or name == GLOBAL_DEPS or item.path.resolve() == home.resolve():
            continue
        by_preload = str(item.path) in view.settings.preload or item.path.name in view.settings.preload
        variable = "LD_PRELOAD" if by_preload else "LD_LIBRARY_PATH"
        hint = f"remove the entry that leads to {item.path} from {variable}"
        yield _error("R024" if by_preload else "R023", name, str(item.path), str(home), hint)


def _on_library_path(view: LoadView) -> Iterator[Finding]:
    """The preload is immune, but programs that import torch without it would take these."""
    own = {path.parent.resolve() for path in view.plan.origins.values()}
    for entry in view.settings.library_path:
        directory = Path(entry or ".")
        if directory.resolve() in own:
            continue
        names = [name for name in sorted(view.plan.origins) if is_file(directory / name)]
        if names:
            yield Finding(
                code="R025",
                severity=Severity.WARNING,
                where=str(directory),
                found=", ".join(names),
                expected="no torch library",
                hint="remove this entry from LD_LIBRARY_PATH: whatever imports torch without the hook would take these",
            )


def _openmp(view: LoadView) -> Iterator[Finding]:
    loaded = view.simulation.process.loaded
    copies = {os.path.realpath(item.path) for item in loaded if canonical_name(item.path.name) == _OPENMP}
    if len(copies) > 1:
        yield Finding(
            code="R070",
            severity=Severity.WARNING,
            where=_OPENMP,
            found=", ".join(sorted(copies)),
            expected="one, that of stock torch",
            hint="remove the other from LD_PRELOAD or LD_LIBRARY_PATH: two thread pools slow each other down",
        )


def _lacking(view: LoadView) -> Iterator[Finding]:
    simulation = view.simulation
    hint = "update the driver stack, or the library on LD_LIBRARY_PATH, that is older than the bundle needs"
    if view.plan.sdk_version:
        hint += f"; the bundle was built with SDK {view.plan.sdk_version}"
    try:
        symbols, versions = simulation.symbols(), simulation.versions()
    except (OSError, NotElfError) as err:
        yield _error(
            "R022", view.plan.backend, f"symbol tables cannot be read: {err}", "readable tables", "reinstall torch_fl"
        )
        return
    if symbols:
        yield _listed("R030", view, map(symbol_line, symbols), f"{len(symbols)} symbols in the process", hint)
    if versions:
        yield _listed("R031", view, map(version_line, versions), f"{len(versions)} symbol versions", hint)


def _listed(code: str, view: LoadView, lines: Iterable[str], expected: str, hint: str) -> Finding:
    return _error(code, view.plan.backend, "none of these:\n" + "\n".join(lines), expected, hint)
