"""What glibc's loader goes by besides the files: LD_* variables, /etc/ld.so.cache, /etc/ld.so.preload, its directories.

Sources: elf/dl-load.c, elf/dl-cache.c and sysdeps/generic/dl-cache.h of glibc; ld.so(8).
"""

from __future__ import annotations

import os
import platform
import re
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from torch_fl_boot.elf import MACHINES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CACHE = Path("/etc/ld.so.cache")
PRELOAD_FILE = Path("/etc/ld.so.preload")
LOADERS = {"x86_64": Path("/lib64/ld-linux-x86-64.so.2"), "aarch64": Path("/lib/ld-linux-aarch64.so.1")}
# Where a loader is too old to say: what upstream, Debian and Red Hat compile in.
_FALLBACK_DIRS = (
    "/lib/{machine}-linux-gnu",
    "/usr/lib/{machine}-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
)
_LIST_SECONDS = 60

_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_HEADER = struct.Struct("<20sIIBxxxI12x")
_CACHE_ENTRY = struct.Struct("<iIIIQ")
_CACHE_FLAGS = {"x86_64": 0x0303, "aarch64": 0x0A03}
_HWCAPS_FOLDER = re.compile(r"/glibc-hwcaps/([^/]+)/")
_SYSTEM_DIR = re.compile(r"^ +(/\S+) \(system search path\)$", re.MULTILINE)
_HWCAP = re.compile(r"^ +(\S+) \(supported, searched\)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class LoaderSettings:
    """`library_path` and `preload` are LD_LIBRARY_PATH and LD_PRELOAD split; an entry "" is the current directory.

    `hwcaps` are the subdirectories of glibc-hwcaps that this processor searches, best first; `cache` maps a soname to
    the paths that ld.so.cache lists for this machine, best first.
    """

    machine: int
    library_path: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    system_dirs: tuple[str, ...] = ()
    hwcaps: tuple[str, ...] = ()
    cache: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def expand(self, text: str, origin: Path) -> str:
        """Replace $ORIGIN, $LIB (`lib/x86_64-linux-gnu`, or `lib64`) and $PLATFORM."""
        lib = self.system_dirs[0].removeprefix("/usr").strip("/") if self.system_dirs else "lib64"
        values = {"ORIGIN": str(origin), "LIB": lib, "PLATFORM": MACHINES.get(self.machine, "")}
        return re.sub(r"\$(?:\{(\w+)\}|(ORIGIN|LIB|PLATFORM))", lambda m: values.get(m[1] or m[2], m[0]), text)


def settings_of(environ: Mapping[str, str]) -> LoaderSettings:
    """Return what the loader of this machine goes by, in a process started with this environment."""
    machine = platform.machine()
    system_dirs, hwcaps = ask_loader(machine)
    return LoaderSettings(
        machine=next(number for number, name in MACHINES.items() if name == machine),
        library_path=split_path(environ.get("LD_LIBRARY_PATH", "")),
        preload=(*split_preload(environ.get("LD_PRELOAD", "")), *preload_file()),
        system_dirs=system_dirs,
        hwcaps=hwcaps,
        cache=read_cache(CACHE, machine, hwcaps),
    )


def split_path(text: str) -> tuple[str, ...]:
    """Split LD_LIBRARY_PATH at colons and semicolons; empty elements count, an empty variable does not."""
    return tuple(re.split("[:;]", text)) if text else ()


def split_preload(text: str) -> tuple[str, ...]:
    """Split LD_PRELOAD at spaces and colons; empty elements do not count."""
    return tuple(filter(None, re.split("[ :]", text)))


def preload_file() -> tuple[str, ...]:
    """Return what /etc/ld.so.preload lists; it is absent on most machines."""
    try:
        text = PRELOAD_FILE.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ()
    return tuple(re.split(r"[\s:]+", re.sub("#.*", "", text).strip())) if text.strip() else ()


def ask_loader(machine: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the loader's own system directories and glibc-hwcaps subdirectories, as `ld.so --help` prints them.

    Loaders before glibc 2.33 print neither: then the usual directories, and no subdirectories.
    """
    environ = {key: value for key, value in os.environ.items() if not key.startswith("LD_")}
    try:
        done = subprocess.run(
            [LOADERS[machine], "--help"],
            capture_output=True,
            text=True,
            check=False,
            env=environ,
            timeout=_LIST_SECONDS,
        )
        text = done.stdout
    except (OSError, KeyError, subprocess.TimeoutExpired):
        text = ""
    found = tuple(_SYSTEM_DIR.findall(text))
    hwcaps = text.partition("glibc-hwcaps directories")[2].partition("\n\n")[0]
    fallback = tuple(entry.format(machine=machine) for entry in _FALLBACK_DIRS)
    return found or fallback, tuple(_HWCAP.findall(hwcaps))


def read_cache(path: Path, machine: str, hwcaps: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """Read ld.so.cache: soname to paths, those for this machine and processor only; empty where there is none.

    The new format may follow the old one in the same file; its strings count from its own header.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    start = data.find(_CACHE_MAGIC)
    if start < 0:
        return {}
    found: dict[str, list[str]] = {}
    try:
        entries = list(_cache_entries(data, start, _CACHE_FLAGS.get(machine, -1)))
    except (struct.error, ValueError):  # cut short: the loader passes it over
        return {}
    for name, target in entries:
        level = _HWCAPS_FOLDER.search(target)
        if level is None or level[1] in hwcaps:
            found.setdefault(name, []).append(target)
    return {name: tuple(sorted(paths, key=lambda item: _rank(item, hwcaps))) for name, paths in found.items()}


def _rank(path: str, hwcaps: tuple[str, ...]) -> int:
    level = _HWCAPS_FOLDER.search(path)
    return len(hwcaps) if level is None else hwcaps.index(level[1])


def _cache_entries(data: bytes, start: int, wanted: int) -> Iterator[tuple[str, str]]:
    _, count, *_ = _CACHE_HEADER.unpack_from(data, start)
    for index in range(count):
        flags, key, value, _, _ = _CACHE_ENTRY.unpack_from(data, start + _CACHE_HEADER.size + index * _CACHE_ENTRY.size)
        if flags == wanted:
            yield _text(data, start + key), _text(data, start + value)


def _text(data: bytes, at: int) -> str:
    return os.fsdecode(data[at : data.index(b"\0", at)])
