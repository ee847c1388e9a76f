"""Writes small, valid shared objects in pure Python: pyelftools parses them, patchelf edits them, dlopen loads them.

Layout: one read-only PT_LOAD with the tables, one writable PT_LOAD with `.dynamic` and `.data` (the loader relocates
`.dynamic` in place), no code. Every undefined symbol has a relocation, so that dlopen fails where nothing provides it,
as it does for a real library.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MACHINES = {"x86_64": 62, "aarch64": 183}
_GLOB_DAT = {"x86_64": 6, "aarch64": 1025}
_EHDR, _PHDR, _SHDR, _SYM, _DYN, _RELA = 64, 56, 64, 24, 16, 24
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_PF_X, _PF_W, _PF_R = 1, 2, 4
_SHT_PROGBITS, _SHT_STRTAB, _SHT_RELA, _SHT_HASH, _SHT_DYNAMIC = 1, 3, 4, 5, 6
_SHT_DYNSYM, _SHT_VERNEED, _SHT_VERSYM = 11, 0x6FFFFFFE, 0x6FFFFFFF
_SHF_WRITE, _SHF_ALLOC = 1, 2
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_RELAENT = 1, 4, 5, 6, 7, 8, 9
_DT_STRSZ, _DT_SYMENT, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 10, 11, 14, 15, 29
_DT_VERSYM, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
_SLOT = 8


@dataclass(frozen=True, kw_only=True)
class ElfSpec:
    """What the file shall contain; `runpath` and `rpath` are written as given, colons and all.

    `version_needs` maps a soname to the versions it must have; `payload` lands in `.rodata`; `align` is the alignment
    of both PT_LOAD headers in bytes; `weak` names are undefined, weak and not relocated; with `code` the first segment
    is executable, as that of any compiled library.
    """

    soname: str | None = None
    needed: tuple[str, ...] = ()
    runpath: str | None = None
    rpath: str | None = None
    defined: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    version_needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    machine: str = "x86_64"
    align: int = 0x1000
    executable_stack: bool = False
    code: bool = False
    payload: bytes = b""

    def write(self, path: Path) -> Path:
        """Write the file, creating its directory; mode 0755."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.to_bytes())
        path.chmod(0o755)
        return path

    def to_bytes(self) -> bytes:
        """Return the file's bytes; equal specs give equal bytes."""
        return _Writer(self).image()


@dataclass(kw_only=True)
class _Section:
    name: str
    kind: int
    data: bytes
    flags: int = _SHF_ALLOC
    link: str = ""
    info: int = 0
    entry: int = 0
    align: int = 8
    offset: int = 0
    address: int = 0


class _Strings:
    """A string table; index 0 is the empty string."""

    def __init__(self) -> None:
        self.data = b"\0"
        self._known: dict[str, int] = {"": 0}

    def add(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self._known[text]


class _Writer:
    def __init__(self, spec: ElfSpec) -> None:
        self.spec = spec
        self.strings = _Strings()
        self.names = [*spec.undefined, *spec.weak, *spec.defined]
        for text in (spec.soname, *spec.needed, spec.runpath, spec.rpath, *self.names):
            self.strings.add(text or "")
        self.verneed = self._verneed()
        self.sections: dict[str, _Section] = {}

    def image(self) -> bytes:
        self._add_tables()
        size = _EHDR + 4 * _PHDR
        for section in self.sections.values():
            if section.flags & _SHF_WRITE:
                continue
            size = section.offset = section.address = _up(size, section.align)
            size += len(section.data)
        start = size = _up(size, 8)
        for section in self.sections.values():
            if section.flags & _SHF_WRITE:
                section.offset, section.address = size, size + self.spec.align
                size += len(section.data)
        self._fill_addresses()
        return self._assemble(start, size)

    def _add_tables(self) -> None:
        count = len(self.names) + 1
        # One bucket with all symbols in one chain: no need to hash.
        chain = [*range(2, count), 0] if count > 1 else []
        hashes = struct.pack(f"<{3 + count}I", 1, count, min(1, count - 1), 0, *chain)
        self._add(_Section(name=".hash", kind=_SHT_HASH, data=hashes, link=".dynsym", entry=4))
        self._add(
            _Section(name=".dynsym", kind=_SHT_DYNSYM, data=bytes(_SYM * count), link=".dynstr", info=1, entry=_SYM)
        )
        self._add(_Section(name=".dynstr", kind=_SHT_STRTAB, data=self.strings.data))
        if self.verneed:
            versym = struct.pack(f"<{count}H", 0, *[1] * (count - 1))
            self._add(_Section(name=".gnu.version", kind=_SHT_VERSYM, data=versym, link=".dynsym", entry=2))
            needs = len(self.spec.version_needs)
            self._add(_Section(name=".gnu.version_r", kind=_SHT_VERNEED, data=self.verneed, link=".dynstr", info=needs))
        if self.spec.undefined:
            self._add(
                _Section(
                    name=".rela.dyn",
                    kind=_SHT_RELA,
                    data=bytes(_RELA * len(self.spec.undefined)),
                    link=".dynsym",
                    entry=_RELA,
                )
            )
        if self.spec.payload:
            self._add(_Section(name=".rodata", kind=_SHT_PROGBITS, data=self.spec.payload))
        tags = bytes(_DYN * len(self._tags(final=False)))
        self._add(_Section(name=".dynamic", kind=_SHT_DYNAMIC, data=tags, link=".dynstr", entry=_DYN))
        self._add(_Section(name=".data", kind=_SHT_PROGBITS, data=bytes(_SLOT * count)))
        for name in (".dynamic", ".data"):
            self.sections[name].flags |= _SHF_WRITE

    def _add(self, section: _Section) -> None:
        self.sections[section.name] = section

    def _fill_addresses(self) -> None:
        spec, data = self.spec, self.sections[".data"].address
        index = list(self.sections).index(".data") + 1
        symbols = bytes(_SYM)
        for number, name in enumerate(self.names, start=1):
            is_defined = number > len(spec.undefined) + len(spec.weak)
            is_weak = not is_defined and number > len(spec.undefined)
            where = (index, data + _SLOT * number, _SLOT) if is_defined else (0, 0, 0)
            info = (2 if is_weak else 1) << 4 | 1  # STB_WEAK or STB_GLOBAL, STT_OBJECT
            symbols += struct.pack("<IBBHQQ", self.strings.add(name), info, 0, *where)
        self.sections[".dynsym"].data = symbols
        if spec.undefined:
            self.sections[".rela.dyn"].data = b"".join(
                struct.pack("<QQq", data + _SLOT * number, number << 32 | _GLOB_DAT[spec.machine], 0)
                for number in range(1, len(spec.undefined) + 1)
            )
        self.sections[".dynamic"].data = b"".join(struct.pack("<QQ", *tag) for tag in self._tags(final=True))

    def _tags(self, *, final: bool) -> list[tuple[int, int]]:
        """Return the entries of `.dynamic`; before the layout is known their addresses are 0."""
        spec, add = self.spec, self.strings.add

        def at(name: str) -> int:
            return self.sections[name].address if final else 0

        tags = [(_DT_NEEDED, add(name)) for name in spec.needed]
        optional = ((_DT_SONAME, spec.soname), (_DT_RPATH, spec.rpath), (_DT_RUNPATH, spec.runpath))
        tags += [(tag, add(text)) for tag, text in optional if text is not None]
        tags += [(_DT_HASH, at(".hash")), (_DT_STRTAB, at(".dynstr")), (_DT_SYMTAB, at(".dynsym"))]
        tags += [(_DT_STRSZ, len(self.strings.data)), (_DT_SYMENT, _SYM)]
        if spec.undefined:
            tags += [(_DT_RELA, at(".rela.dyn")), (_DT_RELASZ, _RELA * len(spec.undefined)), (_DT_RELAENT, _RELA)]
        if self.verneed:
            tags += [(_DT_VERSYM, at(".gnu.version")), (_DT_VERNEED, at(".gnu.version_r"))]
            tags += [(_DT_VERNEEDNUM, len(spec.version_needs))]
        return [*tags, (0, 0)]

    def _verneed(self) -> bytes:
        out, index = b"", 2
        for number, (soname, versions) in enumerate(self.spec.version_needs.items(), start=1):
            last = number == len(self.spec.version_needs)
            following = 0 if last else 16 + 16 * len(versions)
            out += struct.pack("<HHIII", 1, len(versions), self.strings.add(soname), 16, following)
            for place, version in enumerate(versions, start=1):
                step = 0 if place == len(versions) else 16
                out += struct.pack("<IHHII", _elf_hash(version), 0, index, self.strings.add(version), step)
                index += 1
        return out

    def _assemble(self, start: int, size: int) -> bytes:
        names = _Strings()
        every = [_Section(name="", kind=0, data=b"", flags=0, align=0), *self.sections.values()]
        table = _Section(name=".shstrtab", kind=_SHT_STRTAB, data=b"", flags=0, align=1, offset=size)
        every.append(table)
        for section in every:
            names.add(section.name)
        table.data = names.data
        header_offset = _up(size + len(names.data), 8)
        order = [section.name for section in every]
        out = bytearray(header_offset)
        out[:_EHDR] = self._file_header(header_offset, len(every))
        out[_EHDR : _EHDR + 4 * _PHDR] = self._program_headers(start, size)
        for section in every:
            out[section.offset : section.offset + len(section.data)] = section.data
        for section in every:
            link = order.index(section.link) if section.link else 0
            place = (section.flags, section.address, section.offset, len(section.data))
            rest = (link, section.info, section.align, section.entry)
            out += struct.pack("<IIQQQQIIQQ", names.add(section.name), section.kind, *place, *rest)
        return bytes(out)

    def _file_header(self, sections_at: int, count: int) -> bytes:
        ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
        shared_object = 3
        kind = (shared_object, _MACHINES[self.spec.machine], 1, 0, _EHDR, sections_at, 0)
        return ident + struct.pack("<HHIQQQIHHHHHH", *kind, _EHDR, _PHDR, 4, _SHDR, count, count - 1)

    def _program_headers(self, start: int, size: int) -> bytes:
        align, dynamic = self.spec.align, self.sections[".dynamic"]
        stack = _PF_R | _PF_W | (_PF_X if self.spec.executable_stack else 0)
        rows = (
            (_PT_LOAD, _PF_R | (_PF_X if self.spec.code else 0), 0, 0, start, align),
            (_PT_LOAD, _PF_R | _PF_W, start, start + align, size - start, align),
            (_PT_DYNAMIC, _PF_R | _PF_W, dynamic.offset, dynamic.address, len(dynamic.data), 8),
            (_PT_GNU_STACK, stack, 0, 0, 0, 16),
        )
        return b"".join(
            struct.pack("<IIQQQQQQ", kind, flags, offset, at, at, length, length, unit)
            for kind, flags, offset, at, length, unit in rows
        )


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _elf_hash(text: str) -> int:
    value = 0
    for byte in text.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value
