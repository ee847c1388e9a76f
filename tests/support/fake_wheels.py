"""Wheels of the tiny torch and torch_fl, for tests of what installers do to a relinked torch."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from typing import TYPE_CHECKING

from tests.support.fake_torch import CORE, DEVICE, FakeSite, complete_site

if TYPE_CHECKING:
    from pathlib import Path


def fake_wheels(folder: Path, *versions: str) -> dict[str, Path]:
    """Write wheels of torch of these versions and of torch_fl 0.1.0 and 0.2.0; return them by `name-version`."""
    found = {}
    site = complete_site(folder / "first")
    for version in versions:
        other = FakeSite(root=folder / version / "site")
        # Libraries that differ by more than their names.
        other.write_torch(f"{version}+cpu", payload=version.encode())
        found[f"torch-{version}"] = write_wheel(other.root, ("torch",), f"torch-{version}+cpu", folder)
    packages = ("torch_fl", "torch_fl_boot")
    found["torch_fl-0.1.0"] = write_wheel(site.root, packages, "torch_fl-0.1.0+fk", folder)
    site.write_bundle({**CORE, "libc10_cuda.so": DEVICE["libc10_cuda.so"], "libnew.so": ("libc10.so",)})
    found["torch_fl-0.2.0"] = write_wheel(site.root, packages, "torch_fl-0.2.0+fk", folder)
    return found


def write_wheel(site: Path, packages: tuple[str, ...], stem: str, folder: Path) -> Path:
    """Pack packages of a site-packages folder as the wheel of this distribution."""
    name, _, version = stem.partition("-")
    info = f"{stem}.dist-info"
    files = {
        path.relative_to(site).as_posix(): path
        for package in packages
        for path in sorted((site / package).rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    data = {arcname: (path.read_bytes(), path.stat().st_mode) for arcname, path in files.items()}
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    data[f"{info}/METADATA"] = (metadata.encode(), 0o100644)
    data[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        0o100644,
    )
    rows = [f"{arcname},{_hash(content)},{len(content)}\n" for arcname, (content, _) in data.items()]
    data[f"{info}/RECORD"] = ("".join([*rows, f"{info}/RECORD,,\n"]).encode(), 0o100644)
    target = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for arcname, (content, mode) in data.items():
            entry = zipfile.ZipInfo(arcname)
            entry.external_attr = mode << 16
            archive.writestr(entry, content)
    return target


def _hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
