"""Deflate for wheel members: isa-l level 2 in independent chunks, several of them at once.

A stream is cut into chunks of fixed size; each is compressed by itself and ends on a byte boundary (Z_SYNC_FLUSH), so
that the results join to one valid stream whose bytes do not depend on the number of threads. Level 3 of isa-l picks its
code by the CPU and is not reproducible; level 2 is.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from isal import isal_zlib

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

LEVEL = 2
CHUNK = 1 << 20
"""Bytes of input per chunk; part of the output format, like the level."""

THREADS = 2
# Chunks under way: enough to keep the threads busy, few enough to bound memory.
_DEPTH = 2 * THREADS
_RAW = -15  # raw deflate with a 32 KiB window, as zip members have it


def _deflate(chunk: bytes, mode: int) -> bytes:
    compressor = isal_zlib.compressobj(level=LEVEL, wbits=_RAW)
    head: bytes = compressor.compress(chunk)
    tail: bytes = compressor.flush(mode)
    return head + tail


class ChunkedDeflate:
    """A stand-in for `zlib.compressobj()`: `compress()` and `flush()` return raw deflate bytes in order."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self._buffer = bytearray()
        self._pending: deque[Future[bytes]] = deque()

    def compress(self, data: bytes) -> bytes:
        """Take input; return what has been finished, which may be nothing yet."""
        self._buffer += data
        # The last chunk is kept back: only flush() knows that it is the last.
        while len(self._buffer) > CHUNK:
            self._pending.append(self._pool.submit(_deflate, bytes(self._buffer[:CHUNK]), isal_zlib.Z_SYNC_FLUSH))
            del self._buffer[:CHUNK]
        return self._drained(down_to=_DEPTH)

    def flush(self) -> bytes:
        """End the stream; return everything that is still out."""
        return self._drained(down_to=0) + _deflate(bytes(self._buffer), isal_zlib.Z_FINISH)

    def _drained(self, *, down_to: int) -> bytes:
        out = []
        while len(self._pending) > down_to:
            out.append(self._pending.popleft().result())
        return b"".join(out)
