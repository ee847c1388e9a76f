"""Reads what a bundle plan depends on: the vendor's libraries, the SDK's driver directories, stock torch's lib."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bundle.backends import CORE_LIBRARIES, CoreSource, Library, Role, When
from bundle.elf import is_elf, read_elf, read_library
from bundle.errors import InputNotFoundError, MalformedError, RefusedError
from bundle.inputs import BUILDS_WITHOUT, STOCK_SERVES, VERSION_COPY, BundleInputs, Missing, Source, StockFacts
from bundle.system import NEVER_BUNDLED, matches
from bundle.vendor import check_base_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bundle.backends import Backend, ThirdParty
    from bundle.sdk import Sdk
    from bundle.vendor import VendorTorch


@dataclass
class _Found:
    """What was gathered so far."""

    sources: list[Source] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def bundled_libraries(backend: Backend, core: CoreSource) -> tuple[Library, ...]:
    """Return what to bundle of the vendor's torch/lib; a vendor core adds what the backend else takes from stock."""
    own = {library.name for library in backend.libraries}
    added = CORE_LIBRARIES if core is CoreSource.VENDOR else ()
    return (*(library for library in added if library.name not in own), *backend.libraries)


def read_stock(lib: Path, version: str) -> StockFacts:
    """Read stock torch's `torch/lib`; its libc10 tells the machine.

    Raises:
        InputNotFoundError: the directory holds no libc10.so.
    """
    probe = lib / "libc10.so"
    if not probe.is_file():
        raise InputNotFoundError(f"stock torch: no {probe}; expected the lib directory of an installed torch")
    names = frozenset(path.name for path in lib.iterdir() if path.is_file())
    return StockFacts(version=version, machine=read_elf(probe).machine, names=names)


def gather(
    backend: Backend,
    vendor: VendorTorch,
    sdk: Sdk,
    stock: StockFacts,
    *,
    environ: Mapping[str, str],
    core: CoreSource | None = None,
) -> BundleInputs:
    """Read every file that may be bundled; what is missing becomes a value, for the plan to judge.

    `environ` is asked for `ThirdParty.variable`; `core` overrides the backend's.

    Raises:
        VersionMismatchError: vendor and stock torch differ in their base version.
        RefusedError: a link that leads nowhere, or one library under several needed names.
        MalformedError: a damaged ELF file, or a folder, pipe or device in a file's place.
    """
    check_base_version(backend, vendor, stock.version)
    core = core or backend.core
    found = _Found()
    for library in bundled_libraries(backend, core):
        _add_library(found, library, vendor.lib)
    _add_third_party(found, backend.third_party, vendor, environ)
    if backend.version_file:
        _add_version_file(found, vendor)
    return BundleInputs(
        backend=backend,
        core=core,
        vendor=vendor,
        sdk=sdk,
        stock=stock,
        sources=tuple(found.sources),
        missing=tuple(found.missing),
        driver_names=frozenset(name for folder in sdk.driver_dirs for name in _file_names(folder)),
        notes=tuple(found.notes),
    )


def _file_names(folder: Path) -> Iterable[str]:
    # A link that leads nowhere provides nothing.
    return (path.name for path in folder.iterdir() if path.is_file())


def _resolved(path: Path) -> Path:
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as err:  # a loop is a RuntimeError before Python 3.13
        raise RefusedError(
            f"{path} is a link that leads nowhere: {err}",
            hint="complete the vendor's installation; a bundle without this file would not load",
        ) from err
    return real


def _source(name: str, path: Path, role: Role, when: When = When.ALWAYS) -> Source:
    real = _resolved(path)
    if not real.is_file():
        raise MalformedError(f"{path} is no regular file; expected a library or data")
    if not is_elf(real):
        return Source(name=name, path=real, role=Role.DATA, size=real.stat().st_size)
    info, symbols = read_library(real)
    size = real.stat().st_size
    return Source(name=name, path=real, role=role, size=size, when=when, info=info, symbols=symbols)


def _add_library(found: _Found, library: Library, folder: Path) -> None:
    path = folder / library.name
    if path.exists() or path.is_symlink():
        source = _source(library.name, path, library.role, library.when)
        if source.info is None:
            # A linker script or a placeholder under a library's name must not pass as data.
            read_elf(source.path)
        found.sources.append(source)
        return
    optional = "" if library.required else BUILDS_WITHOUT
    found.missing.append(
        Missing(name=library.name, where=folder, optional=STOCK_SERVES if library.stock_fallback else optional)
    )


def _add_third_party(found: _Found, third: ThirdParty, vendor: VendorTorch, environ: Mapping[str, str]) -> None:
    if third.torch_libs:
        _add_torch_libs(found, vendor)
    folder = Path(environ.get(third.variable, "") or third.directory)
    for name in third.names:
        _add_library(found, Library(name=name, role=Role.THIRD_PARTY), folder)


def _add_version_file(found: _Found, vendor: VendorTorch) -> None:
    if vendor.version_file is None:
        found.missing.append(Missing(name="version.py", where=vendor.package or vendor.lib))
    else:
        found.sources.append(_source(VERSION_COPY, vendor.version_file, Role.DATA))


def _add_torch_libs(found: _Found, vendor: VendorTorch) -> None:
    """Add every file of `torch.libs`, links resolved, each content once.

    A link out of the folder keeps its name, which is what DT_NEEDED entries spell. Where several names lead to one
    file, the name that is needed is kept.
    """
    if vendor.torch_libs is None:
        found.missing.append(Missing(name="torch.libs", where=(vendor.package or vendor.lib).parent))
        return
    by_content: dict[Path, list[Source]] = {}
    for path in sorted(vendor.torch_libs.iterdir()):
        if matches(path.name, NEVER_BUNDLED):
            found.notes.append(f"{path.name} in {vendor.torch_libs} is left out: the system's own must serve")
        elif not path.is_dir():
            source = _source(path.name, path, Role.THIRD_PARTY)
            by_content.setdefault(source.path, []).append(source)
    everyone = [*found.sources, *(names[0] for names in by_content.values())]
    needed = {soname for source in everyone if source.info for soname in source.info.needed}
    found.sources += [_one_name(names, needed) for names in by_content.values()]


def _one_name(names: list[Source], needed: set[str]) -> Source:
    wanted = [source for source in names if source.name in needed]
    if len(wanted) > 1:
        raise RefusedError(
            f"{names[0].path} is needed under several names: {', '.join(source.name for source in wanted)}; the loader "
            "would hold one copy for each"
        )
    own = [source for source in names if source.info and source.info.soname == source.name]
    return (*wanted, *own, *names)[0]
