"""Wheels made from dicts, for every backend: complete ones as repack writes them, thin ones, and bundle folders.

A `WheelSpec` describes a clean wheel. Change its `elves` and the manifest follows; change what `members()` returns and
it does not: that is how a test makes a wheel with exactly one fault.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

from bundle.backends import METAX, Backend, CoreSource, Role
from bundle.checks_hook import ENTRY_POINTS, ENTRY_POINTS_FILE, HOOK, HOOK_FILE
from bundle.manifest import Manifest
from bundle.sbom import render_sbom, sbom_path
from bundle.selection import target_driver_dirs
from bundle.wheelfile import EPOCH, Member, write_wheel
from tests.support.tiny_elf import ElfSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

PUBLIC_VERSION = "0.1.0"


@dataclass(kw_only=True)
class WheelSpec:
    """A clean wheel of a backend; `manifest` and `build` override single keys of the two records."""

    backend: Backend = METAX
    label: str | None = None
    machine: str = "x86_64"
    torch: str = "2.10.0"
    requirements: tuple[str, ...] = ()
    manifest: dict[str, Any] = field(default_factory=dict)
    build: dict[str, Any] = field(default_factory=dict)
    elves: dict[str, ElfSpec] = field(default_factory=dict)
    data: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.elves = {**self._plugin(), **self._bundle(), **self.elves}
        if self.backend.version_file:
            self.data[f"{self.folder}/vendor_version.py"] = b"hip: str = '6.3'\n"

    @property
    def folder(self) -> str:
        """The bundle's folder in the wheel."""
        return f"torch_fl/{self.backend.bundle_dir}"

    @property
    def version(self) -> str:
        """The wheel's version."""
        label = self.backend.label if self.label is None else self.label
        return f"{PUBLIC_VERSION}+{label}" if label else PUBLIC_VERSION

    @property
    def dist_info(self) -> str:
        """The name of the dist-info directory."""
        return f"torch_fl-{self.version}.dist-info"

    @property
    def tag(self) -> str:
        """The wheel's tag."""
        python = "cp" + self.backend.python.replace(".", "")
        return f"{python}-{python}-linux_{self.machine}"

    @property
    def file_name(self) -> str:
        """The wheel's file name."""
        return f"torch_fl-{self.version}-{self.tag}.whl"

    @property
    def extension(self) -> str:
        """The path of the extension module."""
        return f"torch_fl/_C.cpython-{self.backend.python.replace('.', '')}-{self.machine}-linux-gnu.so"

    def _runpath(self, *ahead: str) -> str:
        stock = ("$ORIGIN/../../torch/lib",) if self.backend.core is CoreSource.STOCK else ()
        return ":".join((*ahead, *stock, *target_driver_dirs(self.backend)))

    def _elf(self, soname: str | None, *needed: str, runpath: str) -> ElfSpec:
        align = {"x86_64": 0x1000, "aarch64": 0x10000}[self.machine]
        return ElfSpec(soname=soname, needed=(*needed, "libc.so.6"), runpath=runpath, machine=self.machine, align=align)

    def _plugin(self) -> dict[str, ElfSpec]:
        runpath = self._runpath("$ORIGIN", f"$ORIGIN/../{self.backend.bundle_dir}")
        libraries = {
            "libtorch_fl.so": ("libc10.so", "libtorch_cpu.so"),
            "libtorch_bindings.so": ("libtorch_fl.so", "libtorch_python.so"),
            "libflagos.so": (),
        }
        elves = {f"torch_fl/lib/{name}": self._elf(name, *needs, runpath=runpath) for name, needs in libraries.items()}
        stub = f"$ORIGIN/lib:$ORIGIN/{self.backend.bundle_dir}"
        return {**elves, self.extension: self._elf(None, "libtorch_bindings.so", runpath=stub)}

    def _bundle(self) -> dict[str, ElfSpec]:
        runpath = self._runpath("$ORIGIN", f"$ORIGIN/../../{self.folder}")
        elves = {}
        for library in self.backend.libraries:
            needs = () if library.name == "libc10.so" else ("libc10.so",)
            device = (self.backend.runtime_libraries[0],) if library.role is Role.DEVICE else ()
            elves[f"{self.folder}/{library.name}"] = self._elf(library.name, *needs, *device, runpath=runpath)
        third = (
            *self.backend.third_party.names,
            *(("libmpi-3f.so.40",) if self.backend.third_party.torch_libs else ()),
        )
        return {**elves, **{f"{self.folder}/{name}": self._elf(name, runpath=runpath) for name in third}}

    def contents(self) -> dict[str, bytes]:
        """Return the content of every library and data file."""
        return {**{path: elf.to_bytes() for path, elf in self.elves.items()}, **self.data}

    def bundle_manifest(self) -> Manifest:
        """Return the manifest that fits the bundle's files."""
        contents = self.contents()
        files = [
            self._file(path, data) for path, data in sorted(contents.items()) if path.startswith(f"{self.folder}/")
        ]
        return Manifest.from_json(json.dumps({**self._manifest_keys(files), **self.manifest}), origin="test")

    def _file(self, path: str, data: bytes) -> dict[str, Any]:
        elf, name = self.elves.get(path), path.rpartition("/")[2]
        roles = {library.name: library.role.value for library in self.backend.libraries}
        return {
            "name": name,
            "soname": elf.soname if elf else None,
            "role": roles.get(name, "third-party" if elf else "data"),
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": len(data),
            "needed": elf.needed if elf else (),
            "runpath": elf.runpath.split(":") if elf and elf.runpath else (),
        }

    def _manifest_keys(self, files: list[dict[str, Any]]) -> dict[str, Any]:
        libraries = {file["name"]: file for file in files if file["role"] != "data"}
        order = TopologicalSorter({name: set(file["needed"]) & set(libraries) for name, file in libraries.items()})
        backend = self.backend
        return {
            **self._shared_keys(),
            "title": backend.title,
            "core": backend.core.value,
            "strategy": "preload",
            "label": backend.label if self.label is None else self.label,
            "forged": True,
            "vendor_torch": self.torch,
            "sdk_version": "1.0",
            "gems_vendor": backend.gems_vendor,
            "load": [{"name": name, "when": "always"} for name in order.static_order()],
            "files": files,
            "driver_sonames": backend.driver_sonames,
            "driver_dirs": target_driver_dirs(backend),
            "version_fields": {"hip": "6.3"} if backend.version_file else {},
            "requirements": self.requirements,
        }

    def _shared_keys(self) -> dict[str, Any]:
        backend = self.backend
        return {
            "schema": 1,
            "backend": backend.name,
            "bundle_dir": backend.bundle_dir,
            "torch": self.torch,
            "python": backend.python,
            "machine": self.machine,
            "runtime_prefix": backend.runtime_prefix,
            "runtime_libraries": backend.runtime_libraries,
        }

    def build_record(self) -> dict[str, Any]:
        """Return the content of `_build.json`."""
        own = {"accelerator": self.backend.accelerator, "version": PUBLIC_VERSION, "flaggems_python": False}
        return {**self._shared_keys(), "torch": f"{self.torch}+cpu", **own, **self.build}

    def members(self) -> dict[str, bytes]:
        """Return the complete wheel's files by path, but for RECORD."""
        manifest = self.bundle_manifest()
        needs = (f"torch=={self.torch}", *self.requirements)
        return {
            **self.contents(),
            "torch_fl/__init__.py": b"",
            HOOK_FILE: HOOK.encode(),
            f"{self.dist_info}/{ENTRY_POINTS_FILE}": entry_points().encode(),
            "torch_fl/_build.json": json.dumps(self.build_record()).encode(),
            "torch_fl/_bundle.json": manifest.to_json().encode(),
            f"{self.dist_info}/METADATA": metadata(self.version, needs),
            f"{self.dist_info}/WHEEL": wheel(self.tag),
            sbom_path(self.dist_info): render_sbom(manifest, version=self.version).encode(),
        }

    def write(self, folder: Path, members: Mapping[str, bytes] | None = None, *, name: str = "") -> Path:
        """Write a wheel of these members, or of all, with an exact RECORD."""
        made = [Member.of_bytes(path, data) for path, data in (members or self.members()).items()]
        return write_wheel(folder / (name or self.file_name), made, dist_info=self.dist_info)

    def thin(self) -> tuple[WheelSpec, dict[str, bytes]]:
        """Return the spec and the files of the wheel that the compile stage makes, which has no label and no bundle."""
        spec = replace(self, label="")
        members = spec.members()
        dropped = {"torch_fl/_bundle.json", sbom_path(spec.dist_info)}
        members[f"{spec.dist_info}/METADATA"] = metadata(
            PUBLIC_VERSION, ("torch<2.14,>=2.10", "numpy>=2; extra == 'np'")
        )
        kept = {
            path: data
            for path, data in members.items()
            if path not in dropped and not path.startswith(f"{self.folder}/")
        }
        return spec, kept

    def write_thin(self, folder: Path) -> Path:
        """Write the thin wheel."""
        spec, members = self.thin()
        return spec.write(folder, members)

    def write_bundle(self, folder: Path) -> Path:
        """Write what the bundle stage leaves: the bundle's folder and `_bundle.json`."""
        for path, data in self.contents().items():
            if path.startswith(f"{self.folder}/"):
                target = folder / path.removeprefix("torch_fl/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
        (folder / "_bundle.json").write_text(self.bundle_manifest().to_json())
        return folder


def entry_points() -> str:
    """Return entry_points.txt."""
    groups = (
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in ENTRY_POINTS.items()
    )
    return "\n".join(groups)


def metadata(version: str, requirements: Iterable[str]) -> bytes:
    """Return METADATA of a wheel of torch_fl."""
    needs = "".join(f"Requires-Dist: {text}\n" for text in requirements)
    head = f"Metadata-Version: 2.4\nName: torch_fl\nVersion: {version}\nSummary: tënsors\n{needs}"
    return f"{head}Description-Content-Type: text/markdown\n\n# torch_fl\n\nFrom here on\n".encode()


def wheel(tag: str, *, pure: str = "false") -> bytes:
    """Return WHEEL."""
    return f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode()


@dataclass(frozen=True, kw_only=True)
class RawEntry:
    """One zip entry with everything that a careless tool can get wrong; `mode` is a full st_mode."""

    name: str
    data: bytes
    mode: int
    time: tuple[int, int, int, int, int, int] = EPOCH


def entries(path: Path) -> list[RawEntry]:
    """Read a wheel's entries, to be changed and written again by `write_raw`."""
    with zipfile.ZipFile(path) as archive:
        return [
            RawEntry(name=info.filename, data=archive.read(info), mode=info.external_attr >> 16, time=info.date_time)
            for info in archive.infolist()
        ]


def write_raw(path: Path, raw: Iterable[RawEntry]) -> Path:
    """Write zip entries exactly as given, RECORD and all."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in raw:
            info = zipfile.ZipInfo(entry.name, date_time=entry.time)
            info.external_attr = entry.mode << 16
            archive.writestr(info, entry.data, zipfile.ZIP_DEFLATED)
    return path
