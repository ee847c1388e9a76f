"""A wheel around one library: the runtime distribution that a CUDA-shaped torch requires."""

from __future__ import annotations

import base64
import hashlib
import platform
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "nvidia-flagos-software"
VERSION = "1.0"
REQUIREMENT = f'Requires-Dist: {NAME}=={VERSION}; platform_system == "Linux"\n'
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_wheel(folder: Path, library: Path, path_in_wheel: str) -> Path:
    """Write the wheel with `library` at its path below site-packages; equal input gives equal bytes."""
    stem = f"{NAME.replace('-', '_')}-{VERSION}"
    info = f"{stem}.dist-info"
    tag = f"py3-none-linux_{platform.machine()}"
    files: dict[str, bytes] = {
        path_in_wheel: library.read_bytes(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests.forge\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD")
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = (0o755 if ".so" in name else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel


def _record(files: Mapping[str, bytes], own: str) -> bytes:
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join([*rows, f"{own},,\n"]).encode()
