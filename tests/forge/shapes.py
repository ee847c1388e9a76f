"""The types in which a forged vendor is described."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CLibrary:
    """A library in C.

    `path` is relative to the forged tree; `soname` is the file's name unless given. `sources` name files of csrc/;
    without them the library defines the function `int symbol(int *)`, which calls those of `calls`. `needs` are paths
    of libraries built before. `link` is an extra name for the file, beside it; `outside` a path where the file really
    is, `path` then being a link to it.
    """

    path: str
    soname: str = ""
    sources: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    symbol: str = ""
    calls: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    link: str = ""
    outside: str = ""
    versioned: bool = False


@dataclass(frozen=True, kw_only=True)
class Edit:
    """What one file of stock torch becomes: further DT_NEEDED, another RUNPATH."""

    name: str
    add_needed: tuple[str, ...] = ()
    runpath: str = "$ORIGIN"


@dataclass(frozen=True, kw_only=True)
class DeviceLibrary:
    """A torch library of the device: C++ objects of csrc/, linked to libraries of the forged tree."""

    name: str
    objects: tuple[str, ...]
    needs: tuple[str, ...] = ()
    stock: tuple[str, ...] = ("libc10.so", "libtorch_cpu.so")


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """One vendor.

    `local` is the version's local label; `fork_symbols` are mangled names that only this vendor's libtorch_cpu
    exports; `linked` are the libraries that the main device library needs; `sdk_files` are text files of the SDK;
    `extra_driver_dirs` are folders of the tree that a sourced SDK script would name as well. `rpath` writes the
    outdated DT_RPATH instead of DT_RUNPATH. `wheel` is a library that comes from a distribution of its own.
    `bare` tells whether the vendor was seen to ship a bare lib folder.
    """

    local: str
    cuda: str | None
    hip: str | None = None
    rocm: str | None = None
    runtime: CLibrary
    before: tuple[CLibrary, ...] = ()
    after: tuple[CLibrary, ...] = ()
    c10: str
    device: tuple[DeviceLibrary, ...]
    edits: tuple[Edit, ...]
    fork_symbols: tuple[str, ...] = ()
    sdk_files: tuple[tuple[str, str], ...] = ()
    extra_driver_dirs: tuple[str, ...] = ()
    mkl_dir: str = ""
    rpath: bool = False
    wheel: str = ""
    bare: bool = False
