"""What an ELF file says of itself: dynamic section, program headers, symbols. The only importer of pyelftools."""

from __future__ import annotations

import errno
import struct
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from bundle.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_MAGIC = b"\x7fELF"
_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
_PF_X = 1
_SHN_UNDEF = 0
_VERNEED_SIZE = 16  # bytes of an Elf64_Verneed
_STB_GLOBAL = 1
_EXPORTING = frozenset({_STB_GLOBAL, 2, 10})  # STB_GLOBAL, STB_WEAK, STB_GNU_UNIQUE
# pyelftools checks little before it indexes and looks up, so a damaged file surfaces as any of these.
_PARSE_ERRORS = (
    ELFError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
    struct.error,
)


@dataclass(frozen=True, kw_only=True)
class ElfInfo:
    """One shared object as its dynamic section and program headers describe it.

    `needed`, `runpath` and `rpath` keep the order of the file; an empty element of a path list, which the loader reads
    as the current directory, stays in the tuple as "". `machine` is spelled as `platform.machine()` does.
    `load_alignments` are the p_align of the PT_LOAD headers in bytes. `version_needs` are (soname, version) pairs such
    as ("libc.so.6", "GLIBC_2.34").
    """

    path: Path
    soname: str | None
    needed: tuple[str, ...]
    runpath: tuple[str, ...]
    rpath: tuple[str, ...]
    machine: str
    load_alignments: tuple[int, ...]
    executable_stack: bool
    version_needs: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """The file name, which is not always the soname."""
        return self.path.name

    def newest(self, prefix: str) -> str | None:
        """Return the highest version it needs with this prefix (`GLIBC`, `GLIBCXX`, `CXXABI`), or None.

        Only numbered versions compare; GLIBC_PRIVATE and the like are left out.
        """
        head = f"{prefix}_"
        found = [version for _, version in self.version_needs if version.startswith(head)]
        numbered = [version for version in found if version[len(head) :].replace(".", "").isdigit()]
        return max(numbered, key=lambda version: [int(part) for part in version[len(head) :].split(".")], default=None)


@dataclass(frozen=True, kw_only=True)
class Symbols:
    """Dynamic symbol names without their versions; weak undefined symbols may stay unresolved and are left out."""

    defined: frozenset[str]
    undefined_strong: frozenset[str]


def is_elf(path: Path) -> bool:
    """Tell from the first four bytes."""
    with path.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def read_elf(path: Path) -> ElfInfo:
    """Read the dynamic section, program headers and version requirements of a 64-bit shared object.

    Raises:
        MalformedError: not a 64-bit ELF file, or one without a dynamic section, or damaged.
    """
    with _opened(path) as elf:
        return _info(elf, path)


def read_symbols(path: Path) -> Symbols:
    """Read the names in `.dynsym`.

    Raises:
        MalformedError: as `read_elf`, or no `.dynsym` section, or a name outside of `.dynstr`.
    """
    with _opened(path) as elf:
        return _symbols(elf, path)


def read_library(path: Path) -> tuple[ElfInfo, Symbols]:
    """Do what `read_elf` and `read_symbols` do, opening the file once."""
    with _opened(path) as elf:
        return _info(elf, path), _symbols(elf, path)


def _info(elf: ELFFile, path: Path) -> ElfInfo:
    headers = list(elf.iter_segments())
    tags = _dynamic_tags(headers, path)
    stacks = [header["p_flags"] for header in headers if header["p_type"] == "PT_GNU_STACK"]
    return ElfInfo(
        path=path,
        soname=next(iter(tags.get("DT_SONAME", [])), None),
        needed=tuple(tags.get("DT_NEEDED", [])),
        runpath=_split(tags.get("DT_RUNPATH", [])),
        rpath=_split(tags.get("DT_RPATH", [])),
        machine=_MACHINES.get(elf["e_machine"], str(elf["e_machine"])),
        load_alignments=tuple(header["p_align"] for header in headers if header["p_type"] == "PT_LOAD"),
        # Without the header the loader assumes the worst.
        executable_stack=not stacks or any(flags & _PF_X for flags in stacks),
        version_needs=tuple(_version_needs(elf)),
    )


def _symbols(elf: ELFFile, path: Path) -> Symbols:
    # On the raw bytes of the two sections: pyelftools' own objects take seconds for libtorch_cpu's 74 thousand symbols.
    table = elf.get_section_by_name(".dynsym")
    if table is None:
        raise MalformedError(f"{path}: no .dynsym section, so its symbols are unknown")
    names: bytes = elf.get_section(table["sh_link"]).data()
    order = "<" if elf.little_endian else ">"
    defined: set[bytes] = set()
    undefined: set[bytes] = set()
    for offset, info, _, index, _, _ in struct.iter_unpack(f"{order}IBBHQQ", table.data()):
        end = names.find(b"\0", offset)
        if end < 0:
            raise MalformedError(f"{path}: a symbol's name lies outside of .dynstr (offset {offset:#x})")
        if index == _SHN_UNDEF:
            if info >> 4 == _STB_GLOBAL:
                undefined.add(names[offset:end])
        elif info >> 4 in _EXPORTING:
            defined.add(names[offset:end])
    return Symbols(defined=_decoded(defined), undefined_strong=_decoded(undefined))


def _decoded(names: set[bytes]) -> frozenset[str]:
    return frozenset(name.decode("utf-8", "surrogateescape") for name in names if name)


@contextmanager
def _opened(path: Path) -> Iterator[ELFFile]:
    with path.open("rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise MalformedError(f"{path}: not an ELF file")
        try:
            yield _checked_class(path, stream)
        except (*_PARSE_ERRORS, OSError) as err:
            # A seek to an impossible offset is the file's fault; any other OSError is the disk's.
            if isinstance(err, OSError) and err.errno != errno.EINVAL:
                raise
            raise MalformedError(f"{path}: damaged ELF file: {err or type(err).__name__}") from err


def _checked_class(path: Path, stream: BinaryIO) -> ELFFile:
    elf = ELFFile(stream)
    if elf.elfclass != 64:  # noqa: PLR2004 - the number is the ELF class
        raise MalformedError(f"{path}: a {elf.elfclass}-bit ELF file; expected 64-bit")
    return elf


def _dynamic_tags(segments: Iterable[Any], path: Path) -> dict[str, list[str]]:
    """Return the string-valued tags in file order."""
    named = {"DT_SONAME": "soname", "DT_NEEDED": "needed", "DT_RUNPATH": "runpath", "DT_RPATH": "rpath"}
    tags: dict[str, list[str]] = {}
    dynamic = [segment for segment in segments if isinstance(segment, DynamicSegment)]
    if not dynamic:
        raise MalformedError(f"{path}: no dynamic section, so it is no shared object")
    for tag in dynamic[0].iter_tags():
        kind: Any = tag.entry.d_tag
        if kind in named:
            tags.setdefault(kind, []).append(getattr(tag, named[kind]))
    return tags


def _split(values: list[str]) -> tuple[str, ...]:
    # The loader ignores an empty list, but not an empty element of a longer one.
    return tuple(entry for value in values if value for entry in value.split(":"))


def _version_needs(elf: ELFFile) -> Iterator[tuple[str, str]]:
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            if section.num_versions() * _VERNEED_SIZE > section["sh_size"]:
                raise ELFError(f"{section.name} counts {section.num_versions()} entries, more than it can hold")
            for need, versions in section.iter_versions():
                for version in versions:
                    yield need.name, version.name
