"""Where everything lives: two backends never share a folder of outputs, and nothing lands among the sources."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from bundle.errors import about

REPOSITORY = Path(__file__).resolve().parent.parent


def put_text(path: Path, text: str) -> None:
    """Write a file that appears by rename, whoever else writes it; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    with about(path):
        partial.write_text(text, encoding="utf-8")
    partial.replace(path)


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Output folders of one backend; nothing is created by asking for a path."""

    backend: str
    forged: bool = False
    repository: Path = REPOSITORY

    @property
    def _kind(self) -> str:
        return f"{self.backend}-forged" if self.forged else self.backend

    @property
    def build(self) -> Path:
        """Return the folder of this backend's stages."""
        return self.repository / "build" / self._kind

    @property
    def compiled(self) -> Path:
        """Return the folder of the thin wheel."""
        return self.build / "compile"

    @property
    def bundle(self) -> Path:
        """Return the folder of the bundle stage's output."""
        return self.build / "bundle"

    @property
    def forge(self) -> Path:
        """Return the folder of the forged vendor's installation."""
        return self.repository / "build" / "forge" / self.backend

    @property
    def environments(self) -> Path:
        """Return the folder of the Python environments that wheels are compiled in."""
        return self.repository / "build" / "envs"

    @property
    def compiler_cache(self) -> Path:
        """Return the folder of ccache's objects, which all backends share."""
        return self.repository / "build" / "ccache"

    @property
    def dist(self) -> Path:
        """Return the folder of finished wheels; forged ones are kept apart from those that may be released."""
        return self.repository / "dist" / "forged" if self.forged else self.repository / "dist"

    @property
    def reports(self) -> Path:
        """Return the folder of verification reports."""
        return self.repository / "reports"

    def _built(self) -> tuple[Path, ...]:
        build = self.repository / "build"
        return (build / self.backend, build / f"{self.backend}-forged", self.forge)

    def locks(self) -> tuple[Path, ...]:
        """Return the lock files of runs in this backend's build folders, real and forged, that there have been."""
        return tuple(lock for folder in self._built() for lock in sorted(folder.glob(".*.lock")))

    def clean(self) -> tuple[Path, ...]:
        """Remove this backend's build folders, real and forged, and return what was removed."""
        present = tuple(folder for folder in self._built() if folder.exists())
        for folder in present:
            shutil.rmtree(folder)
        return present
