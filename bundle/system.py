"""Which sonames belong to the operating system of every target, and which of them must never be bundled."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SYSTEM_SONAMES = (
    *("ld-linux*.so.*", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"),
    *("libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1", "libatomic.so.1", "libz.so.1", "libnuma.so.1"),
    *("libresolv.so.2", "libnsl.so.1", "libcrypt.so.1"),
)
"""Libraries that every target machine has, or that stock torch brings (libgomp); `fnmatch` patterns."""

NEVER_BUNDLED = (
    *("libstdc++.so*", "libgcc_s.so*", "libgomp.so*", "ld-linux*", "libc.so*", "libm.so*"),
    *("libdl.so*", "libpthread.so*", "librt.so*"),
)
"""Runtimes of which a process can have only one: the system's, or for OpenMP stock torch's."""


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether any `fnmatch` pattern fits, case and all."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
