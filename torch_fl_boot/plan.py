"""What to open, in which order, from where: decided from the manifest and two directories, without side effects."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_fl_boot.elf import NotElfError, read_dynamic
from torch_fl_boot.errors import StrategyError
from torch_fl_boot.manifest import DRIVER, VENDOR_CORE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch_fl_boot.manifest import BundledFile, Manifest
    from torch_fl_boot.stock import StockTorch

CORE_VARIABLE = "FLAGOS_CORE"
PRELOAD = "preload"
RELINK = "relink"
STRATEGIES = (PRELOAD, RELINK)

GLOBAL_DEPS = "libtorch_global_deps.so"
CORE_NAMES = ("libc10.so", "libshm.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so", GLOBAL_DEPS)
_LIB_ROLES = ("core", "device")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One library to open by absolute path.

    `driver` are its direct needs that belong to the target machine, `runpath` where the loader looks for them, with
    $ORIGIN expanded; an `optional` step is left out where its driver is absent.
    """

    path: Path
    optional: bool = False
    driver: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PreloadPlan:
    """The libraries to open, dependencies first: `borrowed` from stock torch, then the bundle's `steps`.

    `origins` says for each library name the one path it may come from; `runtime_libraries` name the vendor's runtime;
    `library_path` and `ld_preload` are the entries of LD_LIBRARY_PATH and LD_PRELOAD, for messages. `relinked` says
    that torch/lib leads to a vendor's core, so that torch itself cannot be imported without the driver stack.
    """

    backend: str
    borrowed: tuple[Path, ...]
    steps: tuple[Step, ...]
    origins: Mapping[str, Path]
    global_deps: Path | None
    driver_sonames: tuple[str, ...]
    requirements: tuple[str, ...]
    sdk_version: str
    runtime_libraries: tuple[str, ...] = ()
    library_path: tuple[str, ...] = ()
    ld_preload: tuple[str, ...] = ()
    forged: bool = False
    relinked: bool = False

    @property
    def driver_hint(self) -> str:
        """The next step where libraries of the driver stack are missing."""
        install = f"install the {self.backend} driver and SDK, or source the SDK's environment script"
        if self.forged:
            printed = f"put the driver_dirs that `inv forge --backend {self.backend}` prints on LD_LIBRARY_PATH"
            install = f"this wheel is forged: {printed}"
        packages = f", and pip install {' '.join(self.requirements)}" if self.requirements else ""
        restore = "; or run `python -m torch_fl restore`, which gives torch its own libraries back"
        return f"{install}{packages}{restore if self.relinked else ''}"

    def is_driver(self, soname: str) -> bool:
        """Whether a library of this name belongs to the target machine."""
        return any(fnmatch.fnmatchcase(soname, pattern) for pattern in self.driver_sonames)


def choose_strategy(environ: Mapping[str, str], manifest: Manifest | None) -> str:
    """Return how the core gets in front of stock torch: FLAGOS_CORE, or if that is empty the wheel's default.

    Raises:
        StrategyError: the variable asks for something unknown, or, without a bundle, to relink.
    """
    asked = environ.get(CORE_VARIABLE) or (manifest.strategy if manifest is not None else PRELOAD)
    known = STRATEGIES if manifest is not None else (PRELOAD,)
    if asked not in known:
        raise StrategyError(asked, known)
    return asked


def plan_preload(manifest: Manifest, bundle: Path, stock: StockTorch, environ: Mapping[str, str]) -> PreloadPlan:
    """Decide what to open: first what the bundle needs of stock torch (libgomp, say), then its own files."""
    files = {file.name: file for file in manifest.files}
    chosen = [(files[step.name], step.when) for step in manifest.load]
    provided = {name for file in manifest.files for name in (file.name, file.soname) if name}
    wanted = {soname: None for file, _ in chosen for soname in file.needed if soname not in provided}
    libraries = [file.name for file in manifest.files if file.role in _LIB_ROLES]
    origins = {name: stock.lib / name for name in CORE_NAMES} | {name: bundle / name for name in libraries}
    opened = {file.name for file, _ in chosen}
    return PreloadPlan(
        backend=manifest.backend,
        borrowed=tuple(_borrow(wanted, stock).values()),
        steps=tuple(_step(manifest, file, when, bundle) for file, when in chosen),
        origins=origins,
        global_deps=bundle / GLOBAL_DEPS if manifest.core == VENDOR_CORE and GLOBAL_DEPS in opened else None,
        driver_sonames=manifest.driver_sonames,
        runtime_libraries=manifest.runtime_libraries,
        requirements=manifest.requirements,
        sdk_version=manifest.sdk_version,
        library_path=tuple(filter(None, environ.get("LD_LIBRARY_PATH", "").split(":"))),
        ld_preload=tuple(environ.get("LD_PRELOAD", "").replace(":", " ").split()),
        forged=manifest.forged,
        relinked=manifest.core == VENDOR_CORE and stock.is_relinked,
    )


def _step(manifest: Manifest, file: BundledFile, when: str, bundle: Path) -> Step:
    patterns = manifest.driver_sonames
    driver = [soname for soname in file.needed if any(fnmatch.fnmatchcase(soname, pattern) for pattern in patterns)]
    bundled = {name for other in manifest.files for name in (other.name, other.soname)}
    # Through a link in torch/lib both lead to different folders, from here to the bundle.
    runpath = [entry.replace(f"$ORIGIN/../../torch_fl/{bundle.name}", "$ORIGIN") for entry in file.runpath]
    return Step(
        path=bundle / file.name,
        optional=when == DRIVER,
        driver=tuple(soname for soname in driver if soname not in bundled),
        runpath=tuple(dict.fromkeys(entry.replace("$ORIGIN", str(bundle)) for entry in runpath)),
    )


def _borrow(wanted: Mapping[str, None], stock: StockTorch) -> dict[str, Path]:
    """Return those of the wanted sonames that stock torch brings, libgomp first; the loader finds the rest or says so.

    Of two OpenMP runtimes in one process the first wins, so stock's goes before a system copy.
    """
    found = {soname: stock.lib / soname for soname in wanted if (stock.lib / soname).is_file()}
    if stock.grafted.is_dir():
        stems = tuple(soname.partition(".so")[0] for soname in wanted if soname not in found)
        for path in sorted(stock.grafted.iterdir()):
            if path.name.startswith(stems) and (soname := _soname(path)) in wanted:
                found.setdefault(soname, path)
    return dict(sorted(found.items(), key=lambda item: not item[0].startswith("libgomp")))


def _soname(path: Path) -> str:
    try:
        return read_dynamic(path).soname or ""
    except NotElfError:
        return ""
