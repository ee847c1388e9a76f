"""Symbols and symbol versions that a load would lack: what the loader says one at a time, all at once.

The rules are those of do_lookup_x and _dl_check_map_versions of glibc: a versioned reference takes a definition of that
version, or any from a library without versions; one without a version takes any definition that is not hidden. A lookup
goes through the global scope and that of the transaction, whatever library the linker once found the symbol in.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_fl_boot.resolve_elf import Symbol, opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from torch_fl_boot.resolve import Loaded
    from torch_fl_boot.resolve_elf import Definition, Library


@dataclass(frozen=True, kw_only=True)
class MissingSymbol:
    """A strong undefined symbol that nothing in the process exports; `name` is as the ELF file spells it, mangled.

    `home` is the soname that its version belongs to, where it has one: the library that is too old.
    """

    name: str
    home: str | None
    needed_by: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True)
class MissingVersion:
    """A version that a library in the process does not define: the loader refuses to load `needed_by`."""

    version: str
    soname: str
    path: Path
    needed_by: tuple[Path, ...]


def missing_symbols(users: Iterable[Loaded], scope: Iterable[Loaded]) -> tuple[MissingSymbol, ...]:
    """Return the symbols that `users` need and nothing in `scope` exports, sorted by name.

    Raises:
        NotElfError: a file's tables lead out of the file.
        OSError: a file cannot be read.
    """
    wanted: dict[Symbol, list[Loaded]] = {}
    for user in users:
        with opened(user.path) as tables:
            for symbol in tables.undefined():
                wanted.setdefault(symbol, []).append(user)
    remaining = _without_found(wanted.keys(), scope)
    return tuple(
        MissingSymbol(
            name=str(symbol),
            home=_home(symbol, wanted[symbol][0].library),
            needed_by=tuple(user.path for user in wanted[symbol]),
        )
        for symbol in sorted(remaining, key=str)
    )


def _without_found(wanted: Iterable[Symbol], scope: Iterable[Loaded]) -> set[Symbol]:
    remaining: dict[bytes, set[Symbol]] = {}
    for symbol in wanted:
        remaining.setdefault(symbol.name, set()).add(symbol)
    for provider in scope:
        if not remaining:
            break
        with opened(provider.path) as tables:
            versioned = bool(provider.library.version_definitions)
            for definition in tables.definitions(remaining):
                # Emptied, not removed: the loop still asks for names that have several versions.
                remaining[definition.name] = {
                    symbol for symbol in remaining[definition.name] if not _answers(definition, symbol, versioned)
                }
        remaining = {name: symbols for name, symbols in remaining.items() if symbols}
    return {symbol for symbols in remaining.values() for symbol in symbols}


def _answers(definition: Definition, symbol: Symbol, versioned: bool) -> bool:
    if symbol.version is None:
        return not definition.hidden
    return not versioned or definition.version == symbol.version


def _home(symbol: Symbol, library: Library) -> str | None:
    version = None if symbol.version is None else os.fsdecode(symbol.version)
    return next((need.soname for need in library.version_needs if need.version == version), None)


def missing_versions(users: Sequence[Loaded], by_soname: Mapping[str, Loaded]) -> tuple[MissingVersion, ...]:
    """Return the versions that `users` require of libraries which define others; one without any is only warned of."""
    found: dict[tuple[str, str], list[Path]] = {}
    for user in users:
        for need in user.library.version_needs:
            provider = by_soname.get(need.soname)
            if provider is None or need.weak or not provider.library.version_definitions:
                continue
            if need.version not in provider.library.version_definitions:
                found.setdefault((need.version, need.soname), []).append(user.path)
    return tuple(
        MissingVersion(version=version, soname=soname, path=by_soname[soname].path, needed_by=tuple(paths))
        for (version, soname), paths in sorted(found.items())
    )
