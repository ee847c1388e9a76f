"""The vendor's torch package: stock torch's libraries, edited into the vendor's shape."""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bundle.errors import InputNotFoundError, ToolError
from bundle.proc import run
from bundle.version_file import base_version, read_assigned
from tests.forge.flavours import TORCH_LIB
from tests.forge.shapes import Edit, Flavour

_GUARD = '''"""A forged vendor's torch: a source of libraries, never imported."""

raise ImportError("this torch is forged; it is bundled from, not imported")
'''
_EXTENSION = "_C.*.so"
# Parts of third-party code inside libtorch_cpu, which no header of torch and no other library names.
_INTERNAL = ("_ZN10tensorpipe", "_ZN4gloo", "_ZN10onnx_torch")


@dataclass(frozen=True, kw_only=True)
class StockTorch:
    """The torch package that is copied from; never written to."""

    package: Path
    version: str
    git_version: str

    @property
    def lib(self) -> Path:
        """Its libraries."""
        return self.package / "lib"

    @property
    def base(self) -> str:
        """The version without its local label."""
        return base_version(self.version, origin=str(self.package / "version.py"))


def read_stock(package: Path) -> StockTorch:
    """Read what stock torch says of itself.

    Raises:
        InputNotFoundError: no torch package there, or one without headers.
    """
    needed = ("version.py", "lib/libtorch_cpu.so", "include/c10/core/Device.h")
    missing = [name for name in needed if not (package / name).is_file()]
    if missing:
        raise InputNotFoundError(f"stock torch: {package} has no {', '.join(missing)}")
    assigned = read_assigned(package / "version.py")
    return StockTorch(
        package=package, version=assigned["__version__"], git_version=assigned.get("git_version", "unknown")
    )


def copy_core(stock: StockTorch, tree: Path) -> None:
    """Copy stock's lib folder, all of it, and the extension that tells the Python version.

    Real copies, never links: patchelf edits in place, and would edit stock torch too.
    """
    lib = tree / TORCH_LIB
    shutil.copytree(stock.lib, lib, symlinks=True, dirs_exist_ok=True)
    for extension in stock.package.glob(_EXTENSION):
        shutil.copy2(extension, lib.parent / extension.name)


def core_size(stock: StockTorch) -> int:
    """Return the bytes that `copy_core` writes."""
    copied = (*stock.lib.rglob("*"), *stock.package.glob(_EXTENSION))
    return sum(path.lstat().st_size for path in copied if not path.is_dir())


def edit_core(stock: StockTorch, flavour: Flavour, tree: Path) -> None:
    """Give the copied core the vendor's DT_NEEDED, RUNPATH and symbols, one patchelf call a file.

    Raises:
        ToolError: patchelf is missing or failed, or too few symbols may be renamed.
    """
    edits = {edit.name: edit for edit in flavour.edits}
    if flavour.fork_symbols:
        edits.setdefault("libtorch_cpu.so", Edit(name="libtorch_cpu.so"))
    with tempfile.TemporaryDirectory(prefix="forge-") as scratch:
        for edit in edits.values():
            arguments = ["--force-rpath"] if flavour.rpath else []
            arguments += ["--set-rpath", edit.runpath]
            for soname in edit.add_needed:
                arguments += ["--add-needed", soname]
            if edit.name == "libtorch_cpu.so" and flavour.fork_symbols:
                renamed = Path(scratch) / "symbols"
                chosen = unused_exports(stock, len(flavour.fork_symbols))
                lines = (f"{old} {new}\n" for old, new in zip(chosen, flavour.fork_symbols, strict=True))
                renamed.write_text("".join(lines), encoding="utf-8")
                arguments += ["--rename-dynamic-symbols", str(renamed)]
            run([_patchelf(), *arguments, tree / TORCH_LIB / edit.name])


def _patchelf() -> Path | str:
    """Return the program that the `patchelf` distribution puts beside the interpreter, else the one on PATH."""
    beside = Path(sys.executable).parent / "patchelf"
    return beside if beside.is_file() else "patchelf"


def unused_exports(stock: StockTorch, count: int) -> tuple[str, ...]:
    """Return functions that libtorch_cpu exports and that nothing else in the torch package imports.

    Only functions of third-party code inside libtorch_cpu are taken, which no header of torch declares, so that no
    extension can import them either. The same torch gives the same names.

    Raises:
        ToolError: there are fewer than `count`.
    """
    exports = _dynamic_symbols(stock.lib / "libtorch_cpu.so", "--defined-only")
    # T: a global function; weak ones (W) may be merged with another library's.
    functions = {name for name, kind in exports if kind == "T" and name.startswith(_INTERNAL)}
    others = [*stock.lib.glob("*.so*"), *stock.package.glob("*.so")]
    for path in others:
        if path.name != "libtorch_cpu.so":
            functions.difference_update(name for name, _ in _dynamic_symbols(path, "--undefined-only"))
    if len(functions) < count:
        raise ToolError(f"{stock.lib}/libtorch_cpu.so has {len(functions)} unused exports, {count} are to be renamed")
    return tuple(sorted(functions)[:count])


def _dynamic_symbols(path: Path, which: str) -> list[tuple[str, str]]:
    lines = run(["nm", "-D", which, "-P", path]).stdout.splitlines()
    words = (line.split() for line in lines)
    return [(word[0].partition("@")[0], word[1]) for word in words if len(word) > 1]


def write_metadata(stock: StockTorch, flavour: Flavour, tree: Path, requires: str) -> None:
    """Write version.py, the guard against imports, and the distribution's METADATA."""
    package = tree / TORCH_LIB
    site = package.parent.parent
    version = f"{stock.base}+{flavour.local}" if flavour.local else stock.base
    fields = {"cuda": flavour.cuda, "hip": flavour.hip, "rocm": flavour.rocm, "xpu": None}
    lines = ["from typing import Optional", "", f"__version__ = {version!r}", "debug = False"]
    lines += [f"git_version = {stock.git_version!r}"]
    lines += [f"{name}: Optional[str] = {value!r}" for name, value in fields.items()]
    (package.parent / "version.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (package.parent / "__init__.py").write_text(_GUARD, encoding="utf-8")
    info = site / f"torch-{version}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\nRequires-Dist: filelock\n{requires}"
    (info / "METADATA").write_text(metadata, encoding="utf-8")


def make_bare(tree: Path, keep: frozenset[str]) -> Path:
    """Reduce the package to a lib folder with the files of `keep`, and return the folder around it."""
    bare = tree / "vendor-libtorch"
    (bare / "lib").mkdir(parents=True)
    for name in sorted(keep):
        (tree / TORCH_LIB / name).rename(bare / "lib" / name)
    shutil.rmtree(tree / "site-packages")
    return bare
