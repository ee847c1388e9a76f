"""What the end-to-end tests start: the command line in a copy of the repository, and installed wheels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

REPOSITORY = Path(__file__).parents[2]
SOURCES = (
    "bundle",
    "cmake",
    "tests",
    "torch_fl",
    "torch_fl.pth",
    "torch_fl_boot",
    "CMakeLists.txt",
    "LICENSE",
    "README.md",
    "pyproject.toml",
)


@dataclass(frozen=True)
class Result:
    """What a run of the command line gave."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Repository:
    """A folder with the project's sources, whose build outputs are its own."""

    root: Path

    def run(self, *arguments: str, environ: dict[str, str] | None = None) -> Result:
        """Start `python -m bundle`."""
        done = subprocess.run(
            [sys.executable, "-m", "bundle", *arguments],
            cwd=self.root,
            env={**os.environ, **(environ or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        return Result(code=done.returncode, out=done.stdout, err=done.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start `python -m bundle` without waiting for it."""
        command = [sys.executable, "-m", "bundle", *arguments]
        return subprocess.Popen(command, cwd=self.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def copy_repository(target: Path, *, built: Sequence[str] = ()) -> Repository:
    """Copy the sources, and of the build outputs the named ones, as hard links: replace them, never write into them."""
    for name in SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    for name in built:
        link_tree(REPOSITORY / "build" / name, target / "build" / name)
    return Repository(root=target)


def link_tree(source: Path, target: Path) -> None:
    """Copy a folder as hard links."""
    shutil.copytree(source, target, copy_function=os.link, symlinks=True)


def rewrite(path: Path, data: bytes) -> None:
    """Replace a file that may be a hard link, keeping its mode."""
    mode = path.stat().st_mode
    path.unlink()
    path.write_bytes(data)
    path.chmod(mode)


@dataclass(frozen=True)
class Site:
    """An environment that holds stock torch and one of our wheels."""

    python: Path
    package: Path
    library_path: str

    def run(self, code: str, *, driver: bool = True, variables: dict[str, str] | None = None) -> Result:
        """Run a program in a fresh process, with or without the driver's directories on LD_LIBRARY_PATH."""
        return self.start("-c", code, driver=driver, variables=variables)

    def start(
        self,
        *arguments: str | Path,
        driver: bool = True,
        variables: dict[str, str] | None = None,
        cwd: Path = Path("/"),
    ) -> Result:
        """Start the interpreter with these arguments, as `run` does."""
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "PYTHON", "FLAGOS_"))}
        if driver and self.library_path:
            environ["LD_LIBRARY_PATH"] = self.library_path
        environ.update(variables or {})
        done = subprocess.run(
            [self.python, *arguments], cwd=cwd, env=environ, capture_output=True, text=True, check=False
        )
        return Result(code=done.returncode, out=done.stdout, err=done.stderr)
