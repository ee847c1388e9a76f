"""Asks libflagos for the devices, as a script of its own: a driver that crashes or hangs takes only this process along.

    python doctor_probe.py LIBFLAGOS PREFIX LIBRARY...

Prints one JSON object: `devices`, and `error` with libflagos's words where something failed. Functions and status codes
are those of csrc/runtime/flagos.h. Imports nothing of the package, since it runs isolated.
"""

from __future__ import annotations

import ctypes
import json
import sys

_NAME_BYTES = 256


class ProbeError(Exception):
    """A call of libflagos failed; the text is libflagos's own."""


class Runtime:
    """libflagos, opened on the vendor's runtime."""

    def __init__(self, path: str, prefix: str, libraries: list[str]) -> None:
        """Open both; raises ProbeError with the runtime's words, OSError with the loader's."""
        self._library = ctypes.CDLL(path)
        self._library.flagosLastErrorText.restype = ctypes.c_char_p
        names = (ctypes.c_char_p * len(libraries))(*(name.encode() for name in libraries))
        self.call("flagosOpen", prefix.encode(), names, ctypes.c_size_t(len(libraries)))

    def call(self, name: str, *arguments: object) -> None:
        """Call a function that returns a status; 0 is success."""
        if getattr(self._library, name)(*arguments) != 0:
            words = self._library.flagosLastErrorText() or b""
            raise ProbeError(words.decode(errors="replace") or f"{name} failed")

    def count(self) -> int:
        """Return the number of devices."""
        count = ctypes.c_int()
        self.call("flagosDeviceCount", ctypes.byref(count))
        return count.value

    def device(self, index: int) -> dict[str, object]:
        """Return one device's index, name, and free and total memory in bytes."""
        name = ctypes.create_string_buffer(_NAME_BYTES)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("flagosDeviceName", index, name, ctypes.c_size_t(_NAME_BYTES))
        self.call("flagosMemoryInfo", index, ctypes.byref(free), ctypes.byref(total))
        text = name.value.decode(errors="replace")
        return {"index": index, "name": text, "free_bytes": free.value, "total_bytes": total.value}


def probe(path: str, prefix: str, libraries: list[str]) -> dict[str, object]:
    """Return what is to be printed."""
    devices: list[dict[str, object]] = []
    try:
        runtime = Runtime(path, prefix, libraries)
        devices += (runtime.device(index) for index in range(runtime.count()))
    except (ProbeError, OSError, AttributeError) as err:
        return {"devices": devices, "error": str(err)}
    return {"devices": devices, "error": ""}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe(sys.argv[1], sys.argv[2], sys.argv[3:])) + "\n")
