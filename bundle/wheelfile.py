"""Wheels as files: a view that streams, and a writer whose bytes depend on nothing but the content.

The container is the standard library's zipfile; only its deflate is replaced (see `bundle/deflate.py`), for which the
library has no public hook. Entries are sorted with dist-info last and RECORD at the very end, and carry one fixed time,
two possible modes, and no extra fields (but for the sizes of members beyond 2 GiB, which ZIP64 keeps in one).
"""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
import zlib
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from bundle.deflate import CHUNK, THREADS, ChunkedDeflate
from bundle.errors import InputNotFoundError, MalformedError, RefusedError, ToolError, about
from bundle.record import RECORD, Digest, render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time a zip entry can carry."""

_UNIX = 3
_EXECUTABLE = stat.S_IFREG | 0o755
_PLAIN = stat.S_IFREG | 0o644


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of the archive; `mode` is the full st_mode (0 where the zip tool stored none), `size` in bytes."""

    name: str
    size: int
    mode: int
    time: tuple[int, ...]

    @property
    def is_directory(self) -> bool:
        """A directory entry, which RECORD cannot list."""
        return self.name.endswith("/")

    @property
    def is_link(self) -> bool:
        """A symbolic link stored as an entry; wheels have no such thing, so installers write its target as text."""
        return stat.S_ISLNK(self.mode)


def is_shared_object(name: str) -> bool:
    """Tell by name, as the loader's world does: `libx.so`, `libx.so.1`."""
    return fnmatchcase(name, "*.so") or fnmatchcase(name, "*.so.*")


@dataclass(frozen=True, kw_only=True)
class WheelView:
    """An open wheel; `entries` in the archive's order, `dist_info` the name of its dist-info directory.

    Members may be opened from several threads at once. Valid inside of `open_wheel`.
    """

    path: Path
    entries: tuple[Entry, ...]
    dist_info: str
    archive: zipfile.ZipFile

    @property
    def files(self) -> tuple[Entry, ...]:
        """Entries that hold a file's content."""
        return tuple(entry for entry in self.entries if not entry.is_directory and not entry.is_link)

    @property
    def record_name(self) -> str:
        """The path of RECORD, present or not."""
        return f"{self.dist_info}/{RECORD}"

    def has(self, name: str) -> bool:
        """Tell whether a file of this name is there."""
        return any(entry.name == name for entry in self.files)

    def read(self, name: str) -> bytes:
        """Return a member's content; meant for the small ones.

        Raises:
            MalformedError: no such member, or its data is damaged.
        """
        with self.open(name) as stream:
            return stream.read()

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a member for streaming; MalformedError as `read`, also for damage found while reading."""
        try:
            stream = self.archive.open(name)
        except KeyError as err:
            raise MalformedError(f"{self.path.name}: no {name} in it") from err
        except (zipfile.BadZipFile, RuntimeError) as err:
            # RuntimeError: encrypted, or compressed by a method that zipfile does not know.
            raise MalformedError(f"{self.path.name}: {name} cannot be read: {err}") from err
        with stream:
            try:
                yield stream
            except (zipfile.BadZipFile, zlib.error, EOFError) as err:
                raise MalformedError(f"{self.path.name}: {name} is damaged: {err}") from err


@contextmanager
def open_wheel(path: Path) -> Iterator[WheelView]:
    """Open a wheel without unpacking it.

    Raises:
        InputNotFoundError: no such file.
        MalformedError: not a zip archive, or not exactly one dist-info directory at its top.
    """
    try:
        archive = zipfile.ZipFile(path)
    except FileNotFoundError as err:
        raise InputNotFoundError(f"no wheel at {path}") from err
    except zipfile.BadZipFile as err:
        raise MalformedError(f"{path}: not a wheel: {err}") from err
    with archive:
        entries = tuple(
            Entry(name=info.filename, size=info.file_size, mode=info.external_attr >> 16, time=info.date_time)
            for info in archive.infolist()
        )
        tops = sorted({top for entry in entries if (top := entry.name.split("/")[0]).endswith(".dist-info")})
        if len(tops) != 1:
            found = ", ".join(tops) or "none"
            raise MalformedError(f"{path.name}: expected one dist-info directory, found {found}")
        yield WheelView(path=path, entries=entries, dist_info=tops[0], archive=archive)


@dataclass(frozen=True, kw_only=True)
class Member:
    """One file to write: `open` gives its content, `size` its length in bytes.

    Shared objects are always executable. `sha256`, where given, is what the content must have.
    """

    name: str
    size: int
    open: Callable[[], BinaryIO]
    executable: bool = False
    sha256: str | None = None

    @classmethod
    def of_bytes(cls, name: str, data: bytes) -> Member:
        """Make a plain file from its content."""
        return cls(name=name, size=len(data), open=lambda: BytesIO(data))

    @property
    def mode(self) -> int:
        """The st_mode of its entry."""
        return _EXECUTABLE if self.executable or is_shared_object(self.name) else _PLAIN


def write_wheel(target: Path, members: Iterable[Member], *, dist_info: str) -> Path:
    """Write a wheel and its RECORD; it appears under its name only when complete.

    Same members, same bytes: not folder, umask, time zone, locale nor number of threads make a difference. Memory
    stays bounded whatever the size of the members.

    Raises:
        RefusedError: two members of one name, or content that lacks the sha256 its member declares.
        ToolError: this Python's zipfile has no compressor to replace.
    """
    own = f"{dist_info}/{RECORD}"
    ordered = sorted(members, key=lambda member: (member.name.startswith(f"{dist_info}/"), member.name))
    names = [member.name for member in ordered] + [own]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RefusedError(f"{target.name}: would hold two files of one name: {', '.join(twice)}")
    with (
        _appearing(target) as stream,
        zipfile.ZipFile(stream, "w") as archive,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        written = {member.name: _add(archive, member, pool) for member in ordered}
        changed = [member.name for member in ordered if member.sha256 and written[member.name].sha256 != member.sha256]
        if changed:
            raise RefusedError(
                f"{target.name}: files changed while the wheel was written: {', '.join(changed)}",
                hint="make sure that nothing writes to the bundle, then run the bundle stage again",
            )
        _add(archive, Member.of_bytes(own, render(written, own=own).encode()), pool)
    return target


def _add(archive: zipfile.ZipFile, member: Member, pool: Executor) -> Digest:
    info = zipfile.ZipInfo(member.name, date_time=EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = _UNIX
    info.external_attr = member.mode << 16
    info.file_size = member.size
    digest, size = hashlib.sha256(), 0
    with member.open() as source, archive.open(info, "w") as sink:
        _replace_compressor(sink, ChunkedDeflate(pool))
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
            sink.write(chunk)
    return Digest(sha256=digest.hexdigest(), size=size)


def _replace_compressor(sink: IO[bytes], compressor: ChunkedDeflate) -> None:
    # zipfile of 3.10 to 3.13 keeps it in this attribute; should another keep it elsewhere, its own deflate must not
    # silently take over, since that would change the wheel's bytes.
    handle = cast("Any", sink)
    if not hasattr(handle, "_compressor"):
        raise ToolError(f"zipfile of this Python has no compressor to replace in {type(sink).__name__}")
    handle._compressor = compressor  # noqa: SLF001 - zipfile has no public way to name a compressor


@contextmanager
def _appearing(target: Path) -> Iterator[BinaryIO]:
    """Open a file beside the target that takes its name on success and vanishes on failure."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _clear_leftovers(target)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with about(target), part.open("wb") as stream:
            yield stream
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _clear_leftovers(target: Path) -> None:
    """Remove what a killed run left; the file of a process that still runs stays."""
    for leftover in target.parent.iterdir():
        if leftover.name.startswith(f".{target.name}.") and leftover.suffix == ".part":
            owner = leftover.suffixes[-2].removeprefix(".")
            if not Path("/proc", owner).exists() or owner == str(os.getpid()):
                leftover.unlink()
