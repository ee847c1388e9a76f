"""The few operations on files that relink and restore consist of. Nothing here writes through a link of any kind."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK = 1 << 20
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS)
FILE, LINK = "file", "link"


@dataclass(frozen=True, kw_only=True)
class Original:
    """What a library of stock torch is: `kind` "file" or "link", `target` of a link, mode bits, size in bytes."""

    kind: str
    target: str
    mode: int
    size: int
    mtime_ns: int
    sha256: str


def sha256(path: Path) -> str:
    """Return the hex digest of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def describe(path: Path) -> Original:
    """Read what is there, links not followed."""
    found = path.lstat()
    is_link = stat.S_ISLNK(found.st_mode)
    return Original(
        kind=LINK if is_link else FILE,
        target=str(path.readlink()) if is_link else "",
        mode=stat.S_IMODE(found.st_mode),
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
        sha256="" if is_link else sha256(path),
    )


def is_original(path: Path, original: Original) -> bool:
    """Whether the path is that file or link; the cheap questions come first, times do not count."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(found.st_mode):
        return original.kind == LINK and str(path.readlink()) == original.target
    return (
        stat.S_ISREG(found.st_mode)
        and (original.kind, original.size) == (FILE, found.st_size)
        and sha256(path) == original.sha256
    )


def is_empty(folder: Path) -> bool:
    """Whether it is a directory without entries."""
    return folder.is_dir() and not any(folder.iterdir())


def links_to(path: Path, target: str) -> bool:
    """Whether the path is a symbolic link with this very text."""
    return path.is_symlink() and str(path.readlink()) == target


def keep(source: Path, target: Path) -> None:
    """Give the source, file or link, a second name; where the file system has no hard links, copy it."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as err:
        if err.errno not in _NO_HARD_LINKS:
            raise
        shutil.copy2(source, target, follow_symlinks=False)
        if not target.is_symlink():
            flush(target)


def write_new(path: Path, data: bytes, *, like: Path) -> None:
    """Write a new file that reaches the disk, with owner and mode of another one (but never executable)."""
    path.unlink(missing_ok=True)
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    adopt(path, like, mask=0o666)


def adopt(path: Path, like: Path, *, mask: int = 0o777) -> None:
    """Take over owner and mode, so that those who may use or remove the one may do so with the other."""
    model = like.stat()
    path.chmod(model.st_mode & mask)
    if os.geteuid() == 0:
        os.chown(path, model.st_uid, model.st_gid)


def replace(source: Path, target: Path) -> None:
    """Rename over the target.

    A rename between two names of one inode does nothing by definition; the source then has to go by itself.
    """
    source.replace(target)
    source.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Make a directory's entries, or a file's content, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_tree(path: Path) -> None:
    """Remove a directory if it is there; links in it are removed, never followed."""
    if path.is_symlink():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
