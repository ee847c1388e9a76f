"""Make one forged vendor: the tree appears by rename, and is reused while nothing that it depends on has changed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from bundle.errors import UsageError
from bundle.space import MB, require
from tests.forge.flavours import FLAVOURS, TORCH_LIB
from tests.forge.libraries import LibraryBuilder
from tests.forge.local_wheel import REQUIREMENT, write_wheel
from tests.forge.package import StockTorch, copy_core, core_size, edit_core, make_bare, read_stock, write_metadata
from tests.forge.toolchain import Toolchain, cleaned, compiler_identity, unfinished

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bundle.backends import Backend
    from bundle.ui import Reporter
    from tests.forge.shapes import Flavour

_HERE = Path(__file__).parent
_STAMP = "forged.json"
# The device's own libraries come to 1 MB, and what patchelf adds to stock's to 10.
_ADDED = 11 * MB


class Variant(str, Enum):
    """A torch package as pip installs it, or a bare lib folder without libshm.so and version.py."""

    FULL = "full"
    BARE = "bare"


@dataclass(frozen=True, kw_only=True)
class ForgedVendor:
    """A vendor-shaped installation.

    `torch` is the package, or in the bare variant the folder around `lib`. `environment` is what the bundle stage
    needs beside it; `driver_dirs` is what the SDK's own script would put on LD_LIBRARY_PATH; `find_links` a folder
    with the distributions that the bundled wheel requires.
    """

    torch: Path
    sdk_root: Path
    environment: tuple[tuple[str, str], ...]
    driver_dirs: tuple[Path, ...]
    find_links: Path | None

    def to_json(self) -> str:
        """Return it as one JSON object, paths as text."""
        return json.dumps(asdict(self), default=str, indent=2, sort_keys=True) + "\n"


def forge(
    backend: Backend,
    *,
    stock: Path,
    out: Path,
    ui: Reporter,
    variant: Variant = Variant.FULL,
    cxx: str = "g++",
) -> ForgedVendor:
    """Make (or reuse) the forged vendor of a backend below `out`; objects are shared in `_cache` beside `out`.

    Raises:
        UsageError: the vendor is not known to come in this variant.
        InputNotFoundError: `stock` is no torch package.
        ToolError: compiler, nm or patchelf is missing or failed.
        NoSpaceError: too little space for a copy of stock's libraries.
    """
    flavour = _flavour(backend, variant)
    out = out.absolute()
    torch = read_stock(stock.absolute())
    compiler = compiler_identity(cxx)
    stamp = _stamp(torch, compiler, backend, variant)
    with _only_one(out):
        if _is_current(out, stamp):
            ui.notice(f"{backend.name}: forged vendor in {out} is up to date")
            return _describe(backend, flavour, out, variant)
        toolchain = _toolchain(cxx, compiler, torch, out.parent / "_cache", ui)
        with unfinished(out.with_name(f"{out.name}.partial")) as partial:
            require(f"{backend.name}: the forged vendor", core_size(torch) + _ADDED, out.parent)
            libraries = LibraryBuilder(
                backend=backend, flavour=flavour, tree=partial, stock_lib=torch.lib, toolchain=toolchain
            )
            _make(libraries, torch)
            if variant is Variant.BARE:
                make_bare(partial, frozenset(one.name for one in backend.libraries if one.required))
            (partial / _STAMP).write_text(stamp, encoding="utf-8")
        _replace(partial, out)
    return _describe(backend, flavour, out, variant)


def _flavour(backend: Backend, variant: Variant) -> Flavour:
    flavour = FLAVOURS[backend.name]
    if variant is Variant.BARE and not flavour.bare:
        known = ", ".join(sorted(name for name, one in FLAVOURS.items() if one.bare))
        raise UsageError(f"{backend.name}: no bare lib folder is known of this vendor, only of {known}")
    return flavour


def _toolchain(cxx: str, compiler: str, torch: StockTorch, cache: Path, ui: Reporter) -> Toolchain:
    return Toolchain(
        cxx=cxx,
        sources=_HERE / "csrc",
        include=torch.package / "include",
        cache=cache,
        identity=f"{compiler} {torch.version} {torch.git_version}",
        ui=ui,
    )


@contextmanager
def _only_one(out: Path) -> Iterator[None]:
    """Let one process at a time work on a forged tree; the others wait, and then find it finished."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with (out.parent / f".{out.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(builder: LibraryBuilder, stock: StockTorch) -> None:
    flavour, tree, ui = builder.flavour, builder.tree, builder.toolchain.ui
    name = builder.backend.name
    with ui.step(f"{name}: build the software device's libraries"):
        builder.build()
    with ui.step(f"{name}: reshape stock torch {stock.version}"):
        copy_core(stock, tree)
        edit_core(stock, flavour, tree)
        write_metadata(stock, flavour, tree, REQUIREMENT if flavour.wheel else "")
    if flavour.wheel:
        below_site = PurePosixPath(flavour.wheel).relative_to("site-packages")
        write_wheel(tree / "wheels", tree / flavour.wheel, str(below_site))
    for file, text in flavour.sdk_files:
        path = tree / "sdk" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _stamp(stock: StockTorch, compiler: str, backend: Backend, variant: Variant) -> str:
    """Return what a forged tree depends on; no dates, and of stock torch its version and its libraries' sizes."""
    sources = sorted(path for path in _HERE.rglob("*") if path.suffix in {".py", ".c", ".cpp", ".h"})
    libraries = sorted(path for path in stock.lib.iterdir() if path.is_file())
    facts = {
        "backend": hashlib.sha256(repr(backend).encode()).hexdigest(),
        "compiler": compiler,
        "sources": {str(path.relative_to(_HERE)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sources},
        "stock": [stock.version, stock.git_version, {path.name: path.stat().st_size for path in libraries}],
        "variant": variant.value,
    }
    return json.dumps(facts, indent=2, sort_keys=True) + "\n"


def _is_current(out: Path, stamp: str) -> bool:
    path = out / _STAMP
    return path.is_file() and path.read_text(encoding="utf-8") == stamp


def _replace(partial: Path, out: Path) -> None:
    """Put a finished tree where an older one may be; a folder cannot be renamed over a full one."""
    if out.exists():
        old = out.with_name(f"{out.name}.old")
        cleaned(old).rmdir()
        out.rename(old)
        partial.rename(out)
        shutil.rmtree(old)
    else:
        partial.rename(out)


def _describe(backend: Backend, flavour: Flavour, out: Path, variant: Variant) -> ForgedVendor:
    sdk = out / "sdk"
    relative = [entry for entry in backend.driver_dirs if not entry.startswith("/")]
    folders = [folder for entry in relative for folder in sorted(sdk.glob(entry)) if folder.is_dir()]
    folders += [out / entry for entry in flavour.extra_driver_dirs]
    package = out / PurePosixPath(TORCH_LIB).parent if variant is Variant.FULL else out / "vendor-libtorch"
    variable = backend.third_party.variable
    return ForgedVendor(
        torch=package,
        sdk_root=sdk,
        environment=((variable, str(out / flavour.mkl_dir)),) if flavour.mkl_dir and variable else (),
        driver_dirs=tuple(folders),
        find_links=out / "wheels" if flavour.wheel else None,
    )
