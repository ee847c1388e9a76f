"""Where each DT_NEEDED would be found: glibc's loader, simulated without opening anything.

The order, from elf/dl-load.c and elf/dl-deps.c: what is loaded already under this name or soname; a name with a slash
by path; then, without DT_RUNPATH, DT_RPATH of the library and of those that brought it; LD_LIBRARY_PATH; DT_RUNPATH of
the library; ld.so.cache; the system directories. Libraries come breadth first. A file of another class or machine is
passed over, as the loader does; a file that is no ELF file ends the search with an error.

What the simulation does not know: libraries that other Python modules opened before, and LD_AUDIT.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl_boot.elf import NotElfError
from torch_fl_boot.paths import exists
from torch_fl_boot.resolve_elf import Library, read_library

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch_fl_boot.resolve_settings import LoaderSettings

LOADED, BY_PATH, BY_RPATH, BY_RUNPATH = "already loaded", "its path", "DT_RPATH", "DT_RUNPATH"
BY_LIBRARY_PATH, BY_CACHE, BY_SYSTEM = "LD_LIBRARY_PATH", "ld.so.cache", "system directory"
NOWHERE = "nowhere"

_HEADER = 20
_MAGIC, _CLASS64, _MACHINE = b"\x7fELF", 2, slice(18, 20)


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A library in the simulated process; `path` is the one it was opened by: $ORIGIN is that one's directory."""

    path: Path
    library: Library
    loader: Loaded | None


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """One DT_NEEDED entry (or LD_PRELOAD entry, with no `user`): where the loader finds it, and by which rule.

    `path` is None where it finds nothing; `problem` holds what is wrong with the file it finds.
    """

    user: Path | None
    soname: str
    path: Path | None
    rule: str
    problem: str = ""


class Process:
    """A process as its loader sees it. Nothing is executed; files are only read."""

    def __init__(self, settings: LoaderSettings) -> None:
        """Begin with nothing loaded."""
        self.settings = settings
        self.loaded: list[Loaded] = []
        self.resolutions: list[Resolution] = []
        self._names: dict[str, Loaded] = {}
        self._files: dict[tuple[int, int], Loaded] = {}
        self._served: set[Loaded] = set()
        self._main: Loaded | None = None

    def start(self, executable: Path) -> tuple[Loaded, ...]:
        """Load a program, what LD_PRELOAD names, and what they need: the global scope, in order."""
        resolution = Resolution(user=None, soname=str(executable), path=executable, rule=BY_PATH)
        main = self._take(resolution, executable, None)
        self._main = main
        roots = [main] if main is not None else []
        for name in self.settings.preload:
            found = self._need(name, main, user=None)
            roots += [found] if found is not None else []
        return self._closure(roots)

    def open(self, paths: Iterable[Path]) -> tuple[Loaded, ...]:
        """Open files in one transaction and return the scope in which their symbols are looked up, in order."""
        found = [self._need(str(path), None, user=None) for path in paths]
        return self._closure([item for item in found if item is not None])

    def find(self, soname: str, loader: Loaded) -> Resolution:
        """Say where a need of a loaded library is found, loading nothing."""
        return self._search(soname, loader, loader.path)

    def _closure(self, roots: Sequence[Loaded]) -> tuple[Loaded, ...]:
        order = dict.fromkeys(roots)
        queue = deque(order)
        while queue:
            user = queue.popleft()
            for soname in user.library.needed:
                # The loader looks for a library's needs once; later loads find them among what is loaded.
                found = self._names.get(soname) if user in self._served else self._need(soname, user, user=user.path)
                if found is not None and found not in order:
                    order[found] = None
                    queue.append(found)
            self._served.add(user)
        return tuple(order)

    def _need(self, name: str, loader: Loaded | None, user: Path | None) -> Loaded | None:
        resolution = self._search(name, loader, user)
        known = self._names.get(name)
        if known is None and resolution.path is not None:
            return self._take(resolution, resolution.path, loader)
        self.resolutions.append(resolution)
        return known

    def _take(self, resolution: Resolution, path: Path, loader: Loaded | None) -> Loaded | None:
        try:
            status = path.stat()
            known = self._files.get((status.st_dev, status.st_ino))
            library = known.library if known is not None else read_library(path)
        except (OSError, NotElfError) as err:
            words = (err.strerror if isinstance(err, OSError) else str(err)) or type(err).__name__
            self.resolutions.append(replace(resolution, problem=words))
            return None
        self.resolutions.append(resolution)
        if known is None:
            known = Loaded(path=path, library=library, loader=loader)
            self.loaded.append(known)
            self._files[status.st_dev, status.st_ino] = known
        for name in (str(path), resolution.soname, library.soname):
            if name:
                self._names.setdefault(name, known)
        return known

    def _search(self, name: str, loader: Loaded | None, user: Path | None) -> Resolution:
        known = self._names.get(name)
        if known is not None:
            return Resolution(user=user, soname=name, path=known.path, rule=LOADED)
        if "/" in name:
            path = Path(self.settings.expand(name, loader.path.parent if loader is not None else self._origin()))
            return Resolution(user=user, soname=name, path=path if exists(path) else None, rule=BY_PATH)
        for directory, rule in self._directories(loader):
            for candidate in self._candidates(Path(directory or "."), name, rule):
                if self._fits(candidate):
                    return Resolution(user=user, soname=name, path=candidate, rule=rule)
        return Resolution(user=user, soname=name, path=None, rule=NOWHERE)

    def _directories(self, loader: Loaded | None) -> Iterator[tuple[str, str]]:
        """Yield the places to look, each with its rule; the cache is the place "", once."""
        settings = self.settings
        if loader is None or not loader.library.has_runpath:
            chain = loader
            while chain is not None:
                yield from ((settings.expand(entry, chain.path.parent), BY_RPATH) for entry in chain.library.rpath)
                chain = chain.loader
            if self._main is not None and loader is not self._main:
                yield from ((settings.expand(entry, self._origin()), BY_RPATH) for entry in self._main.library.rpath)
        yield from ((settings.expand(entry, self._origin()), BY_LIBRARY_PATH) for entry in settings.library_path)
        if loader is not None:
            yield from ((settings.expand(item, loader.path.parent), BY_RUNPATH) for item in loader.library.runpath)
        yield "", BY_CACHE
        if loader is None or not loader.library.no_default_dirs:
            yield from ((directory, BY_SYSTEM) for directory in settings.system_dirs)

    def _origin(self) -> Path:
        """Return what $ORIGIN means in a variable: the program's folder."""
        return self._main.path.parent if self._main is not None else Path()

    def _candidates(self, directory: Path, name: str, rule: str) -> Iterator[Path]:
        if rule == BY_CACHE:
            yield from map(Path, self.settings.cache.get(name, ()))
            return
        for level in self.settings.hwcaps:
            yield directory / "glibc-hwcaps" / level / name
        yield directory / name

    def _fits(self, path: Path) -> bool:
        """Whether the loader would take this file, if only to fail on it; others it passes over."""
        try:
            with path.open("rb") as stream:
                header = stream.read(_HEADER)
        except OSError:
            return False
        if len(header) < _HEADER or header[: len(_MAGIC)] != _MAGIC:
            return True
        return header[4] == _CLASS64 and int.from_bytes(header[_MACHINE], "little") == self.settings.machine


def running_program() -> Path:
    """Return the program of this process, the one that its children by `sys.executable` run too."""
    return Path("/proc/self/exe").readlink()
