"""The preload of a wheel, simulated: what it would load from where, and which symbols it would lack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_fl_boot.elf import NotElfError
from torch_fl_boot.resolve import Loaded, Process, running_program
from torch_fl_boot.resolve_elf import read_library
from torch_fl_boot.resolve_settings import settings_of
from torch_fl_boot.resolve_symbols import missing_symbols, missing_versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from torch_fl_boot.plan import PreloadPlan, Step
    from torch_fl_boot.resolve import Resolution
    from torch_fl_boot.resolve_settings import LoaderSettings
    from torch_fl_boot.resolve_symbols import MissingSymbol, MissingVersion

# A damaged core lacks thousands; an exception's text stays readable.
_LISTED = 60


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """The process after the preload: all resolutions in order, who is loaded, the steps left out for want of a driver.

    `added` are the libraries that the preload itself brings, `scope` those that their symbols are looked up in.
    """

    process: Process
    added: tuple[Loaded, ...]
    scope: tuple[Loaded, ...]
    skipped: tuple[tuple[Step, Resolution], ...]

    def symbols(self) -> tuple[MissingSymbol, ...]:
        """Return the symbols that the preload would lack; raises as `missing_symbols` does."""
        return missing_symbols(self.added, self.scope)

    def versions(self) -> tuple[MissingVersion, ...]:
        """Return the symbol versions that the preload would lack."""
        return missing_versions(self.added, {item.library.soname or "": item for item in reversed(self.process.loaded)})


def simulate(plan: PreloadPlan, settings: LoaderSettings, program: Path, extra: Iterable[Path] = ()) -> Simulation:
    """Load `program`, then the plan's libraries and `extra` (the plugin's own) as the runtime would."""
    process = Process(settings)
    scope = process.start(program)
    skipped = tuple(_without_driver(process, plan.steps))
    left_out = {step for step, _ in skipped}
    paths = [*plan.borrowed, *(step.path for step in plan.steps if step not in left_out)]
    opened = process.open(paths)
    for path in extra:
        opened = (*opened, *process.open([path]))
    added = tuple(dict.fromkeys(item for item in opened if item not in scope))
    return Simulation(process=process, added=added, scope=(*scope, *added), skipped=skipped)


def _without_driver(process: Process, steps: Sequence[Step]) -> Iterable[tuple[Step, Resolution]]:
    for step in steps:
        if not step.optional:
            continue
        try:
            item = Loaded(path=step.path, library=read_library(step.path), loader=None)
        except (OSError, NotElfError):
            continue
        lacking = [found for soname in step.driver if (found := process.find(soname, item)).path is None]
        if lacking:
            yield step, lacking[0]


def lacks_of(plan: PreloadPlan, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line for each symbol and version that the preload lacks in a process with this environment.

    A file that cannot be read makes it one line that says so: this explains a failure and must not replace it.
    """
    try:
        simulation = simulate(plan, settings_of(environ), running_program())
        lines = [version_line(version) for version in simulation.versions()]
        lines += [symbol_line(symbol) for symbol in simulation.symbols()]
    except (OSError, NotElfError) as err:
        return (f"(the list of missing symbols could not be made: {err})",)
    rest = len(lines) - _LISTED
    more = [f"and {rest} more; `python -m torch_fl doctor` lists all"] if rest > 0 else []
    return (*lines[:_LISTED], *more)


def symbol_line(symbol: MissingSymbol) -> str:
    """Return `NAME, needed by FILES`, with the soname that its version belongs to."""
    home = f" of {symbol.home}" if symbol.home else ""
    return f"{symbol.name}{home}, needed by {_names(symbol.needed_by)}"


def version_line(version: MissingVersion) -> str:
    """Return `version V in FILE, needed by FILES`."""
    return f"version {version.version} in {version.path}, needed by {_names(version.needed_by)}"


def _names(paths: Iterable[Path]) -> str:
    return ", ".join(path.name for path in paths)
