"""What the loader reads of a shared object, and its symbols with their versions: GNU and SysV hash, verneed, verdef.

Files are mapped, not read: of a libtorch_cuda of 470 MB only the pages of its symbol tables are touched. Layouts follow
the System V gABI, symbol versioning the LSB. 64-bit little-endian only, as `elf` is.
"""

from __future__ import annotations

import mmap
import os
import struct
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from torch_fl_boot.elf import NotElfError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from pathlib import Path

_IDENT = b"\x7fELF\x02\x01"
_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")
_SHDR = struct.Struct("<IIQQQQIIQQ")
_DYN = struct.Struct("<QQ")
_SYM = struct.Struct("<IBBHQQ")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")
_VERDEF = struct.Struct("<HHHHIII")
_PT_LOAD, _PT_DYNAMIC = 1, 2
_SHT_DYNSYM = 11
_DT_NULL, _DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 4, 5, 6, 14, 15, 29
_DT_GNU_HASH, _DT_VERSYM, _DT_FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFB
_DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_DF_1_NODEFLIB = 0x800
_STB_GLOBAL = 1
_EXPORTED = frozenset({_STB_GLOBAL, 2, 10})  # STB_GLOBAL, STB_WEAK, STB_GNU_UNIQUE
_STV_HIDING = frozenset({1, 2})  # STV_INTERNAL, STV_HIDDEN
_STT_TLS, _SHN_ABS = 6, 0xFFF1
_VERSION_HIDDEN, _VERSION_MASK = 0x8000, 0x7FFF
_FIRST_NAMED = 2  # 0 is local, 1 is global without a version
_VER_FLG_WEAK = 2


class Symbol(NamedTuple):
    """A name as the loader looks it up; `version` is None where the reference has none."""

    name: bytes
    version: bytes | None

    def __str__(self) -> str:
        text = os.fsdecode(self.name)
        return text if self.version is None else f"{text}@{os.fsdecode(self.version)}"


class Definition(NamedTuple):
    """An exported symbol; a `hidden` one answers only to its version (`name@VERSION` as against `name@@VERSION`)."""

    name: bytes
    version: bytes | None
    hidden: bool


@dataclass(frozen=True, kw_only=True)
class VersionNeed:
    """A version that a library of this soname must define; the loader tolerates the lack of a `weak` one."""

    soname: str
    version: str
    weak: bool


@dataclass(frozen=True, kw_only=True)
class Library:
    """The dynamic section as the loader uses it; `rpath` is empty where there is a RUNPATH, which overrules it."""

    machine: int
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    has_runpath: bool
    no_default_dirs: bool
    version_needs: tuple[VersionNeed, ...]
    version_definitions: frozenset[str]


class ElfTables:
    """One mapped file; every method raises NotElfError where the tables lead out of the file."""

    def __init__(self, data: mmap.mmap) -> None:
        """Read header, program headers and dynamic section."""
        self._data = data
        if data[: len(_IDENT)] != _IDENT:
            raise NotElfError("not a 64-bit little-endian ELF file")
        _, _, self.machine, _, _, phoff, self._shoff, _, _, phentsize, phnum, _, self._shnum, _ = _EHDR.unpack_from(
            data
        )
        segments = [_PHDR.unpack_from(data, phoff + index * phentsize) for index in range(phnum)]
        self._loads = [segment for segment in segments if segment[0] == _PT_LOAD]
        dynamic = next((segment for segment in segments if segment[0] == _PT_DYNAMIC), None)
        if dynamic is None:
            raise NotElfError("no dynamic section")
        self._tags = list(self._dynamic(dynamic[2], dynamic[5]))
        self._tag = dict(self._tags)
        if _DT_STRTAB not in self._tag:
            raise NotElfError("empty dynamic section")
        self._strings = self._offset(self._tag[_DT_STRTAB])

    def _dynamic(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        for tag, value in _DYN.iter_unpack(self._data[offset : offset + size // _DYN.size * _DYN.size]):
            if tag == _DT_NULL:
                return
            yield tag, value

    def _offset(self, address: int) -> int:
        for _, _, offset, vaddr, _, filesz, *_ in self._loads:
            if vaddr <= address < vaddr + filesz:
                return int(address - vaddr + offset)
        raise NotElfError(f"address {address:#x} lies outside the file")

    def _string(self, index: int) -> bytes:
        start = self._strings + index
        end = self._data.find(b"\0", start)
        if end < 0:
            raise NotElfError("unterminated string")
        return self._data[start:end]

    def library(self) -> Library:
        """Return what the dynamic section and the version tables say."""
        runpath, rpath = self._paths(_DT_RUNPATH), self._paths(_DT_RPATH)
        sonames = self._texts(_DT_SONAME)
        return Library(
            machine=self.machine,
            soname=sonames[0] if sonames else None,
            needed=tuple(self._texts(_DT_NEEDED)),
            rpath=() if _DT_RUNPATH in self._tag else rpath,
            runpath=runpath,
            has_runpath=_DT_RUNPATH in self._tag,
            no_default_dirs=bool(self._tag.get(_DT_FLAGS_1, 0) & _DF_1_NODEFLIB),
            version_needs=tuple(need for need, _ in self._version_needs()),
            version_definitions=frozenset(os.fsdecode(name) for _, name in self._version_definitions()),
        )

    def _texts(self, wanted: int) -> list[str]:
        return [os.fsdecode(self._string(value)) for tag, value in self._tags if tag == wanted]

    def _paths(self, tag: int) -> tuple[str, ...]:
        return tuple(entry for text in self._texts(tag) if text for entry in text.split(":"))

    def _version_needs(self) -> Iterator[tuple[VersionNeed, int]]:
        if _DT_VERNEED not in self._tag:
            return
        at = self._offset(self._tag[_DT_VERNEED])
        for _ in range(self._tag.get(_DT_VERNEEDNUM, 0)):
            _, count, file, aux, step = _VERNEED.unpack_from(self._data, at)
            soname, entry = os.fsdecode(self._string(file)), at + aux
            for _ in range(count):
                _, flags, other, name, following = _VERNAUX.unpack_from(self._data, entry)
                version = os.fsdecode(self._string(name))
                yield VersionNeed(soname=soname, version=version, weak=bool(flags & _VER_FLG_WEAK)), other
                entry += following
            at += step

    def _version_definitions(self) -> Iterator[tuple[int, bytes]]:
        if _DT_VERDEF not in self._tag:
            return
        at = self._offset(self._tag[_DT_VERDEF])
        for _ in range(self._tag.get(_DT_VERDEFNUM, 0)):
            _, _, index, _, _, aux, step = _VERDEF.unpack_from(self._data, at)
            (name,) = struct.unpack_from("<I", self._data, at + aux)
            yield index, self._string(name)
            at += step

    def undefined(self) -> frozenset[Symbol]:
        """Return the strong undefined symbols: with RTLD_NOW the loader refuses the file if one is found nowhere."""
        names = {other & _VERSION_MASK: os.fsencode(need.version) for need, other in self._version_needs()}
        return frozenset(
            Symbol(self._string(name), names.get(version & _VERSION_MASK))
            for (name, info, _, section, _, _), version in self._symbols()
            if section == 0 and info >> 4 == _STB_GLOBAL and name
        )

    def definitions(self, wanted: Container[bytes]) -> Iterator[Definition]:
        """Yield those of the exported symbols whose name is `wanted`, as the loader's lookup would accept them."""
        versions = dict(self._version_definitions())
        for (name, info, visibility, section, value, _), version in self._symbols():
            if section == 0 or info >> 4 not in _EXPORTED or visibility & 3 in _STV_HIDING:
                continue
            # A value of 0 means "not here", but for thread-local offsets and absolute symbols.
            if value == 0 and section != _SHN_ABS and info & 0xF != _STT_TLS:
                continue
            text = self._string(name)
            if text in wanted:
                index = version & _VERSION_MASK
                named = versions.get(index) if index >= _FIRST_NAMED else None
                yield Definition(text, named, bool(version & _VERSION_HIDDEN))

    def _symbols(self) -> Iterable[tuple[tuple[int, int, int, int, int, int], int]]:
        count = self.symbol_count()
        start = self._offset(self._tag[_DT_SYMTAB])
        table = memoryview(self._data)[start : start + count * _SYM.size]
        if _DT_VERSYM not in self._tag:
            return zip(_SYM.iter_unpack(table), [1] * count, strict=True)
        versions = self._words(self._offset(self._tag[_DT_VERSYM]), count, "H")
        return zip(_SYM.iter_unpack(table), versions, strict=True)

    def symbol_count(self) -> int:
        """Return the number of dynamic symbols, the null symbol included.

        No tag says it. The section headers do; where they were stripped, the hash tables tell how far they lead.
        """
        address = self._tag.get(_DT_SYMTAB)
        if address is None:
            return 0
        for index in range(self._shnum):
            _, kind, _, at, _, size, *_ = _SHDR.unpack_from(self._data, self._shoff + index * _SHDR.size)
            if kind == _SHT_DYNSYM and at == address:
                return int(size // _SYM.size)
        return self.hashed_count()

    def hashed_count(self) -> int:
        """Return the number of symbols by the SysV hash table, else by the longest chain of the GNU one."""
        if _DT_HASH in self._tag:
            return self._words(self._offset(self._tag[_DT_HASH]), 2, "I")[1]
        if _DT_GNU_HASH not in self._tag:
            return 0
        at = self._offset(self._tag[_DT_GNU_HASH])
        buckets, first, bloom, _ = self._words(at, 4, "I")
        chains = at + 16 + bloom * 8 + buckets * 4
        last = max(self._words(at + 16 + bloom * 8, buckets, "I"), default=0)
        if last < first:
            return first
        while not self._words(chains + (last - first) * 4, 1, "I")[0] & 1:
            last += 1
        return last + 1

    def _words(self, offset: int, count: int, kind: str) -> tuple[int, ...]:
        return struct.unpack_from(f"<{count}{kind}", self._data, offset)


@contextmanager
def opened(path: Path) -> Iterator[ElfTables]:
    """Map a file and give its tables.

    Raises:
        NotElfError: not what a loader could open, or its tables lead out of the file.
        OSError: the file cannot be read.
    """
    with path.open("rb") as stream:
        try:
            data = mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)
        except ValueError as err:
            raise NotElfError("file too short") from err
        try:
            yield ElfTables(data)
        except (struct.error, IndexError, OverflowError, MemoryError) as err:
            raise NotElfError(str(err)) from err


def read_library(path: Path) -> Library:
    """Read the dynamic section and the version tables; raises as `opened` does."""
    with opened(path) as tables:
        return tables.library()
