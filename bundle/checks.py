"""What an audit looks at, and what a check is. The checks themselves are in the modules `checks_*`.

A check is a pure function over a `Subject`, which holds everything that was read from the wheel: no check opens a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeAlias

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from bundle.backends import BACKENDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from email.message import Message

    from packaging.tags import Tag
    from packaging.version import Version

    from bundle.backends import Backend
    from bundle.elf import ElfInfo
    from bundle.manifest import BuildRecord, Manifest
    from bundle.record import Digest
    from bundle.wheelfile import Entry

Pairs: TypeAlias = Iterator[tuple[str, str]]
"""What a check yields: where, and what is wrong there."""

PACKAGE = "torch_fl"
PLUGIN_PATTERNS = (f"{PACKAGE}/_C.*.so", f"{PACKAGE}/lib/*.so")
"""The libraries that this repository compiles, as opposed to those it bundles."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing wrong with a wheel; `where` is a member of it, or its file name."""

    code: str
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.code} {self.where}: {self.detail}"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that can be wrong: a stable code, its documentation, and the function that looks for it."""

    code: str
    title: str
    cause: str
    fix: str
    find: Callable[[Subject], Pairs]

    def findings(self, subject: Subject) -> tuple[Finding, ...]:
        """Run it."""
        return tuple(Finding(code=self.code, where=where, detail=detail) for where, detail in self.find(subject))


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Everything that was read from one wheel.

    `digests` covers every file; `texts` holds the small text files that checks read; `elves` the shared objects, and
    `damaged` why others, that are so by name, could not be read; `paths` the build machine's paths found per file.
    `build` and `manifest` are None where absent or unreadable, which `build_problem` and `manifest_problem` tell.
    """

    name: str
    dist_info: str
    entries: tuple[Entry, ...]
    digests: Mapping[str, Digest]
    texts: Mapping[str, str]
    elves: Mapping[str, ElfInfo]
    damaged: Mapping[str, str]
    paths: Mapping[str, tuple[str, ...]]
    build: BuildRecord | None
    manifest: Manifest | None
    build_problem: str
    manifest_problem: str

    @property
    def file_name(self) -> tuple[str, Version, frozenset[Tag]] | None:
        """The parts of the wheel's file name: distribution, version, tags; None where it is no wheel's name."""
        try:
            name, version, _, tags = parse_wheel_filename(self.name)
        except InvalidWheelFilename:
            return None
        return name, version, tags

    @property
    def backend(self) -> Backend | None:
        """The backend that the manifest names, or the build record where there is no manifest."""
        named = self.manifest or self.build
        return BACKENDS.get(named.backend) if named else None

    @property
    def bundle_folder(self) -> str | None:
        """The path of the bundle's folder with a slash at its end; None without a manifest."""
        return f"{PACKAGE}/{self.manifest.bundle_dir}/" if self.manifest else None

    @property
    def bundled(self) -> tuple[str, ...]:
        """The files in the bundle's folder, by path."""
        folder = self.bundle_folder
        return tuple(sorted(name for name in self.digests if folder and name.startswith(folder)))

    @property
    def plugin(self) -> tuple[str, ...]:
        """The libraries that this repository compiled, by path."""
        return tuple(sorted(filter(is_plugin_library, self.elves)))

    def headers(self, name: str) -> Message:
        """Return METADATA or WHEEL as a mapping of headers; empty where the file is missing."""
        return HeaderParser().parsestr(self.texts.get(f"{self.dist_info}/{name}", ""))


def is_plugin_library(name: str) -> bool:
    """Tell whether a member is one of the libraries that this repository compiles."""
    return any(fnmatchcase(name, pattern) for pattern in PLUGIN_PATTERNS)
