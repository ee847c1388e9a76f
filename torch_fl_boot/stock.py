"""The stock torch that the bundle is put in front of: found and read without importing it."""

from __future__ import annotations

import ast
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from torch_fl_boot.errors import TorchMissingError

# As in torch_fl_boot.relink.journal, which costs more to import than the rest of the runtime.
RELINK_TRACES = ("_orig_backup", ".flagos_stage")


@dataclass(frozen=True, kw_only=True)
class StockTorch:
    """An installed torch package; `version` is the full one, such as 2.10.0+cpu."""

    package: Path
    version: str

    @property
    def lib(self) -> Path:
        """The directory of its libraries."""
        return self.package / "lib"

    @property
    def is_relinked(self) -> bool:
        """Whether a relink has been here, finished or not."""
        return any(os.path.lexists(self.lib / name) for name in RELINK_TRACES)

    @property
    def grafted(self) -> Path:
        """The directory that a wheel repair tool puts third-party libraries into; may be absent."""
        return self.package.with_name(f"{self.package.name}.libs")


def base_version(version: str) -> str:
    """Return the version without its local label: 2.10.0 for 2.10.0+cpu."""
    return version.partition("+")[0]


def locate_stock(expected: str) -> StockTorch:
    """Find the torch that `import torch` would take, or has taken.

    Raises:
        TorchMissingError: there is none, or its version cannot be read; `expected` is the base version to install.
    """
    return stock_in(locate_package(expected), expected)


def locate_package(expected: str = "") -> Path:
    """Return the folder of the torch that `import torch` would take, or has taken, whatever its version.

    Raises:
        TorchMissingError: there is none.
    """
    try:
        spec = importlib.util.find_spec("torch")
    except ValueError as err:  # a module without a spec, as tests put it into sys.modules
        raise TorchMissingError(f"the module torch in this process is a stand-in: {err}", expected=expected) from err
    if spec is None:
        raise TorchMissingError("no torch is installed", expected=expected)
    if spec.origin is None:
        # pip leaves the folder behind when it holds foreign files; Python then takes it for a namespace package.
        places = ", ".join(spec.submodule_search_locations or ())
        raise TorchMissingError(f"{places} holds only the remains of one", expected=expected)
    return Path(spec.origin).parent


def stock_in(package: Path, expected: str) -> StockTorch:
    """Return the torch in this folder.

    Raises:
        TorchMissingError: there is none, or its version cannot be read.
    """
    version_file = package / "version.py"
    if not os.path.lexists(version_file):
        raise TorchMissingError(f"{package} holds none", expected=expected)
    try:
        version = _assigned(version_file, "__version__")
    except (OSError, SyntaxError, ValueError) as err:
        raise TorchMissingError(f"{version_file} cannot be read: {err}", expected=expected) from err
    if version is None:
        raise TorchMissingError(f"{version_file} names no version", expected=expected)
    return StockTorch(package=package, version=version)


def read_version(package: Path) -> str | None:
    """Return the version of the torch in this directory, or None where there is none that says so."""
    try:
        return _assigned(package / "version.py", "__version__")
    except (OSError, SyntaxError, ValueError):
        return None


def _assigned(file: Path, name: str) -> str | None:
    """Return the string that the file assigns to `name`, with or without an annotation."""
    if not file.is_file():
        return None
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
        if named and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return node.value.value
    return None
