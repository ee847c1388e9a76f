"""The little of ELF that the runtime needs: what a library calls itself and needs, and how to open many at once.

64-bit little-endian only, as every supported machine is. Layouts follow the System V gABI.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MACHINES = {62: "x86_64", 183: "aarch64"}

_IDENT = b"\x7fELF\x02\x01\x01"
_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")
_DYN = struct.Struct("<QQ")
_SYM_SIZE = 24
_ET_DYN = 3
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_PF_RW = 6
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT = 0, 1, 5, 6, 10, 11
_DT_SONAME, _DT_RUNPATH = 14, 29
# Larger than any page size in use, so that every kernel maps the file.
_ALIGN = 0x10000
_STRING_CHUNK = 4096


class NotElfError(ValueError):
    """The file is no 64-bit little-endian ELF file with a readable dynamic section; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    """What the loader will read first: e_machine, DT_SONAME and DT_NEEDED."""

    machine: int
    soname: str | None
    needed: tuple[str, ...]


def read_dynamic(path: Path) -> Dynamic:
    """Read header and dynamic section, and no more: a damaged one kills the process when the loader meets it.

    Raises:
        NotElfError: the file is not what a loader could open.
        OSError: the file cannot be read.
    """
    with path.open("rb") as stream:
        try:
            return _read_dynamic(stream)
        except (struct.error, UnicodeDecodeError, ValueError) as err:
            raise NotElfError(str(err)) from err


def _read_dynamic(stream: IO[bytes]) -> Dynamic:
    header = stream.read(_EHDR.size)
    if header[: len(_IDENT)] != _IDENT:
        raise NotElfError("not a 64-bit little-endian ELF file")
    _, _, machine, _, _, phoff, _, _, _, phentsize, phnum, *_ = _EHDR.unpack(header)
    stream.seek(phoff)
    table = stream.read(phentsize * phnum)
    segments = [_PHDR.unpack_from(table, index * phentsize) for index in range(phnum)]
    dynamic = next((segment for segment in segments if segment[0] == _PT_DYNAMIC), None)
    if dynamic is None:
        raise NotElfError("no dynamic section")
    stream.seek(dynamic[2])
    tags = [tag for tag in _DYN.iter_unpack(stream.read(dynamic[5])) if tag[0] != _DT_NULL]
    strtab = dict(tags).get(_DT_STRTAB)
    if strtab is None:
        raise NotElfError("empty dynamic section")
    start = _file_offset(segments, strtab)
    sonames = [_string(stream, start + value) for tag, value in tags if tag == _DT_SONAME]
    needed = tuple(_string(stream, start + value) for tag, value in tags if tag == _DT_NEEDED)
    return Dynamic(machine=machine, soname=sonames[0] if sonames else None, needed=needed)


def _file_offset(segments: Iterable[tuple[int, ...]], address: int) -> int:
    for kind, _, offset, vaddr, _, filesz, *_ in segments:
        if kind == _PT_LOAD and vaddr <= address < vaddr + filesz:
            return address - vaddr + offset
    raise NotElfError("string table outside the file")


def _string(stream: IO[bytes], offset: int) -> str:
    stream.seek(offset)
    text, end, _ = stream.read(_STRING_CHUNK).partition(b"\0")
    if not end:
        raise NotElfError("unterminated string")
    return text.decode()


def index_library(needed: Iterable[str], *, machine: int, runpath: str = "") -> bytes:
    """Return a shared object without code whose DT_NEEDED are `needed`, in that order.

    To open it is to open all of them in one transaction: the loader maps every entry before it looks at the needs of
    the first, and undoes everything when one fails. An entry with a slash is opened by that very path.
    """
    strings = b"\0"
    tags: list[tuple[int, int]] = []
    entries = [(_DT_NEEDED, name) for name in needed]
    if runpath:
        entries.append((_DT_RUNPATH, runpath))
    for tag, text in entries:
        tags.append((tag, len(strings)))
        strings += os.fsencode(text) + b"\0"
    dynamic_at = _EHDR.size + 3 * _PHDR.size
    symbols_at = dynamic_at + (len(tags) + 5) * _DYN.size
    strings_at = symbols_at + _SYM_SIZE
    tags += [(_DT_STRTAB, strings_at), (_DT_STRSZ, len(strings)), (_DT_SYMTAB, symbols_at), (_DT_SYMENT, _SYM_SIZE)]
    dynamic = b"".join(_DYN.pack(*tag) for tag in (*tags, (_DT_NULL, 0)))
    size = strings_at + len(strings)
    header = _EHDR.pack(_IDENT, _ET_DYN, machine, 1, 0, _EHDR.size, 0, 0, _EHDR.size, _PHDR.size, 3, 0, 0, 0)
    segments = (
        # Writable, because older loaders relocate the dynamic section in place.
        (_PT_LOAD, _PF_RW, 0, 0, 0, size, size, _ALIGN),
        (_PT_DYNAMIC, _PF_RW, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8),
        # Without this header the loader would make the stack executable.
        (_PT_GNU_STACK, _PF_RW, 0, 0, 0, 0, 0, 16),
    )
    return header + b"".join(_PHDR.pack(*segment) for segment in segments) + dynamic + bytes(_SYM_SIZE) + strings
