"""Compile once, link per vendor: objects are kept in a cache that all forged vendors share."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bundle.errors import ToolError, about
from bundle.proc import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from bundle.ui import Reporter

_INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)
_COMMON = ("-O1", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")
_CXX_FLAGS = (*_COMMON, "-x", "c++", "-std=c++20", "-fvisibility-inlines-hidden")
_C_FLAGS = (*_COMMON, "-x", "c", "-std=gnu11", "-O2")


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One translation unit: a file of csrc/, or generated text; `torch` for those that see torch's headers."""

    name: str
    text: str
    cxx: bool
    torch: bool = False
    defines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Link:
    """One shared library: objects, libraries it needs by path, and how the loader shall see it."""

    output: Path
    soname: str
    objects: tuple[Path, ...]
    libraries: tuple[Path, ...] = ()
    runpath: str = ""
    rpath: bool = False
    version_script: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """A compiler, the sources' folder, the torch whose headers are used, and the cache of objects.

    `identity` names what the objects depend on beside their own text: compiler, torch, headers.
    """

    cxx: str
    sources: Path
    include: Path
    cache: Path
    identity: str
    ui: Reporter

    def unit(self, file: str, *, torch: bool = False, defines: tuple[str, ...] = ()) -> Unit:
        """Return a file of csrc/ as a unit."""
        text = (self.sources / file).read_text(encoding="utf-8")
        return Unit(name=file, text=text, cxx=file.endswith(".cpp"), torch=torch, defines=defines)

    def compile_all(self, units: Sequence[Unit]) -> tuple[Path, ...]:
        """Compile units, as many at once as there are processors, and return their objects in order.

        Raises:
            ToolError: the compiler is missing or failed.
        """
        with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
            return tuple(pool.map(self.compile, units))

    def compile(self, unit: Unit) -> Path:
        """Compile one unit unless the cache has its object; the object appears by rename."""
        flags = [*(_CXX_FLAGS if unit.cxx else _C_FLAGS), *(f"-D{define}" for define in unit.defines)]
        key = _digest(
            (self.identity if unit.cxx else "", unit.name, unit.text, *self._headers(unit.name, unit.text), *flags)
        )
        folder = self.cache / key
        made = folder / "unit.o"
        if made.is_file():
            return made
        # Named after this process: no later run would take it away.
        with unfinished(self.cache / f"{key}.{os.getpid()}.partial") as partial:
            self._compile_in(partial, unit, flags)
        _publish(partial, folder)
        return made

    def _compile_in(self, partial: Path, unit: Unit, flags: Sequence[str]) -> None:
        source = partial / unit.name.replace("/", "_")
        # No path of the build machine ends up in the library, not even in assertion messages.
        places = [f"-ffile-prefix-map={partial}=software", f"-ffile-prefix-map={self.sources}=software"]
        places += ["-I", str(self.sources), "-I", str((self.sources / unit.name).parent)]
        if unit.torch:
            places += [f"-ffile-prefix-map={self.include}=torch", "-isystem", str(self.include)]
            places += ["-isystem", str(self.include / "torch/csrc/api/include")]
        source.write_text(unit.text, encoding="utf-8")
        run([self.cxx, *flags, *places, "-c", source, "-o", partial / "unit.o"], ui=self.ui)

    def _headers(self, name: str, text: str) -> Iterator[str]:
        """Yield the text of every header of csrc/ that a unit includes, directly or not, once each."""
        seen: set[Path] = set()
        waiting = [((self.sources / name).parent, text)]
        while waiting:
            folder, including = waiting.pop()
            for included in _INCLUDE.findall(including):
                header = next(path for path in (folder / included, self.sources / included) if path.is_file())
                if header not in seen:
                    seen.add(header)
                    waiting.append((header.parent, header.read_text(encoding="utf-8")))
                    yield waiting[-1][1]

    def link(self, link: Link) -> None:
        """Link one shared library.

        Raises:
            ToolError: the linker failed.
        """
        link.output.parent.mkdir(parents=True, exist_ok=True)
        # Every library given is needed, used or not; symbols that only another libtorch_cpu has may stay open.
        flags = ["-shared", f"-Wl,-soname,{link.soname}", "-Wl,-s", "-Wl,--no-as-needed", "-Wl,-z,noexecstack"]
        if link.runpath:
            tags = "--disable-new-dtags" if link.rpath else "--enable-new-dtags"
            flags += [f"-Wl,{tags}", f"-Wl,-rpath,{link.runpath}"]
        if link.version_script is not None:
            flags.append(f"-Wl,--version-script={link.version_script}")
        # What the libraries need in turn is none of this link's business.
        flags.append("-Wl,--allow-shlib-undefined")
        run([self.cxx, *flags, *link.objects, *link.libraries, "-o", link.output], ui=self.ui)
        link.output.chmod(0o755)


def compiler_identity(cxx: str) -> str:
    """Return the compiler's version.

    Raises:
        ToolError: there is no such compiler.
    """
    if shutil.which(cxx) is None:
        raise ToolError(f"no compiler {cxx!r} on PATH, needed to build the software device")
    return run([cxx, "--version"]).stdout.splitlines()[0]


def cleaned(folder: Path) -> Path:
    """Return an empty folder; what an interrupted run left there is no good."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


@contextmanager
def unfinished(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that does not outlive a failure: on a full disk it is the room that is missing."""
    cleaned(folder)
    try:
        with about(folder):
            yield folder
    except BaseException:
        shutil.rmtree(folder)
        raise


def _digest(texts: Iterable[str]) -> str:
    state = hashlib.sha256()
    for text in texts:
        state.update(f"{len(text)}:".encode() + text.encode())
    return state.hexdigest()[:32]


def _publish(partial: Path, folder: Path) -> None:
    """Rename a finished folder into place; another process may have been first, and its result is the same."""
    try:
        partial.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        shutil.rmtree(partial)
