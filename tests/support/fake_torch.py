"""A site-packages folder with a torch and a torch_fl made of tiny shared objects, to run the real runtime in.

The loader, the mapping of files and the refusals are the real ones; only the code inside the libraries is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import py_compile
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bundle.checks_hook import ENTRY_POINTS_FILE, HOOK_FILE
from tests.support.tiny_elf import ElfSpec
from tests.support.wheels import entry_points

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE = Path(__file__).parents[2]
SOURCES = ("torch_fl/*.py", "torch_fl_boot/**/*.py")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
MACHINE = platform.machine()
TORCH = "2.10.0"

# Programs for `FakeSite.run`: say how the import ended; then what torch is like in the same process.
TRY = """
try:
    import torch_fl
except ImportError as err:
    print(type(err).__name__)
    print(err)
else:
    print("imported")
"""
THEN_TORCH = """
print("---")
import torch
for line in open("/proc/self/maps"):
    if "/lib_fake/" in line or "memfd" in line:
        print("left behind:", line)
print(torch.__version__)
"""

CORE: dict[str, tuple[str, ...]] = {
    "libc10.so": (),
    "libtorch_cpu.so": ("libc10.so", "libgomp.so.1"),
    "libtorch.so": ("libtorch_cpu.so",),
    "libtorch_global_deps.so": ("libgomp.so.1",),
    "libshm.so": ("libtorch_cpu.so", "libc10.so"),
    "libtorch_python.so": ("libtorch.so", "libshm.so", "libtorch_cpu.so", "libc10.so"),
}
DEVICE: dict[str, tuple[str, ...]] = {
    "libc10_cuda.so": ("libc10.so", "libdriver.so.5"),
    "libtorch_cuda.so": ("libc10_cuda.so", "libtorch_cpu.so", "libc10.so"),
}
NVRTC: dict[str, tuple[str, ...]] = {"libcaffe2_nvrtc.so": ("libdrivercore.so.1",)}

# What torch does: its own global_deps stub by path, into the global scope; then the extension that needs the rest; at
# the end the entry points of others, whose failure is its own.
_TORCH_INIT = """
import ctypes, pathlib
_here = pathlib.Path(__file__).parent
ctypes.CDLL(str(_here / "lib/libtorch_global_deps.so"), mode=ctypes.RTLD_GLOBAL)
ctypes.CDLL(str(_here / "_C.so"))
from torch import version
__version__ = version.__version__

import os
if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
    from importlib.metadata import entry_points
    for extension in entry_points(group="torch.backends"):
        try:
            extension.load()()
        except Exception as err:
            raise RuntimeError(f"Failed to load the backend extension: {extension.name}") from err
"""
_FLAGOS_INIT = """
import sys
def _register():
    sys.modules["torch"].registered = getattr(sys.modules["torch"], "registered", 0) + 1
"""


@cache
def _runtime() -> dict[str, bytes]:
    """The runtime's sources and their bytecode, made once: the interpreters of the tests would compile it each time."""
    files = {}
    with tempfile.TemporaryDirectory() as scratch:
        for source in (path for pattern in SOURCES for path in SOURCE.glob(pattern)):
            folder = source.parent.relative_to(SOURCE)
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            compiled = py_compile.compile(
                str(source), f"{scratch}/{source.name}c", doraise=True, invalidation_mode=mode
            )
            files[f"{folder}/{source.name}"] = source.read_bytes()
            bytecode = f"{folder}/__pycache__/{source.stem}.{sys.implementation.cache_tag}.pyc"
            files[bytecode] = Path(str(compiled)).read_bytes()
    return files


@dataclass(kw_only=True)
class FakeSite:
    """Builds the folder piece by piece; `manifest` may be changed until `write_manifest`.

    The folder is put in front by PYTHONPATH, or is the site-packages of the virtual environment that `python` belongs
    to, where its .pth file counts.
    """

    root: Path
    python: Path | None = None
    manifest: dict[str, Any] = field(default_factory=dict)

    @property
    def bundle(self) -> Path:
        return self.root / "torch_fl/lib_fake"

    @property
    def torch_lib(self) -> Path:
        return self.root / "torch/lib"

    @property
    def sdk(self) -> Path:
        return self.root.parent / "sdk/lib"

    def write_torch(self, version: str = f"{TORCH}+cpu", **more: Any) -> None:
        """Stock torch, with a libgomp of its own."""
        package = self.root / "torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(_TORCH_INIT)
        fields = "\n".join(f"{name}: object = None" for name in ("cuda", "hip", "rocm"))
        (package / "version.py").write_text(f"__version__ = {version!r}\n{fields}\n")
        for name, needed in {**CORE, "libgomp.so.1": ()}.items():
            self.library(self.torch_lib / name, needed=needed, **more)
        spec = ElfSpec(needed=("libtorch_python.so",), runpath="$ORIGIN:$ORIGIN/lib", machine=MACHINE)
        spec.write(package / "_C.so")

    def write_record(self) -> None:
        """What an installer would have recorded of the torch that is there now."""
        info = self.root / f"torch-{TORCH}+cpu.dist-info"
        info.mkdir()
        names = sorted(path.relative_to(self.root) for path in (self.root / "torch").rglob("*") if path.is_file())
        (info / "RECORD").write_text("".join(f"{name},sha256=abc,1\n" for name in names))

    def write_plugin(self, *, backend: str = "fake") -> None:
        """The runtime's own sources beside a stand-in for the compiled device module, and `_build.json`."""
        package = self.root / "torch_fl"
        (package / "flagos").mkdir(parents=True)
        for name, data in _runtime().items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (package / "flagos/__init__.py").write_text(_FLAGOS_INIT)
        record = {
            "schema": 1, "backend": backend, "accelerator": backend, "version": "0.1.0", "torch": TORCH,
            "python": PYTHON, "machine": MACHINE, "bundle_dir": "lib_fake", "flaggems_python": False,
            "runtime_prefix": "fake", "runtime_libraries": [],
        }  # fmt: skip
        (package / "_build.json").write_text(json.dumps(record))

    def write_driver(self, *names: str, needed: tuple[str, ...] = ()) -> None:
        """Libraries of the driver stack, in the SDK's directory."""
        for name in names:
            self.library(self.sdk / name, needed=needed)

    def library(self, path: Path, *, needed: tuple[str, ...] = (), **more: Any) -> Path:
        spec = {"soname": path.name, "machine": MACHINE, "runpath": "$ORIGIN", **more}
        return ElfSpec(needed=needed, **spec).write(path)

    def write_bundle(self, libraries: dict[str, tuple[str, ...]], *, core: str = "vendor", **more: Any) -> None:
        """Bundle these libraries, in load order, and describe them; libcaffe2_nvrtc only where the driver is."""
        runpath = f"$ORIGIN/../../torch_fl/lib_fake:$ORIGIN:{self.sdk}"
        files = []
        for name, needed in libraries.items():
            data = self.library(self.bundle / name, needed=needed, runpath=runpath).read_bytes()
            files.append(
                {
                    "name": name,
                    "soname": name,
                    "role": "core" if name in CORE else "device",
                    "sha256": hashlib.sha256(data).hexdigest(),
                    "size": len(data),
                    "needed": list(needed),
                    "runpath": runpath.split(":"),
                }
            )
        self.manifest = {
            "schema": 1, "backend": "fake", "title": "Fake", "core": core, "strategy": "preload",
            "bundle_dir": "lib_fake", "torch": TORCH, "python": PYTHON, "machine": MACHINE, "label": "fk",
            "forged": False, "vendor_torch": f"{TORCH}+fake1", "sdk_version": "7.1", "runtime_prefix": "fake",
            "runtime_libraries": [], "gems_vendor": "fakevendor", "files": files,
            "load": [{"name": name, "when": "driver" if name in NVRTC else "always"} for name in libraries],
            "driver_sonames": ["libdriver*.so*"], "driver_dirs": [str(self.sdk)],
            "version_fields": {"hip": "6.3.0", "rocm": "26.4"}, "requirements": [], **more,
        }  # fmt: skip
        self.write_manifest()

    def write_manifest(self) -> None:
        (self.root / "torch_fl/_bundle.json").write_text(json.dumps(self.manifest))

    def write_hook(self) -> None:
        """What an installed wheel adds beside the packages: the hook, and the entry point that torch looks for."""
        shutil.copy2(SOURCE / HOOK_FILE, self.root)
        info = self.root / "torch_fl-0.1.0+fk.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_fl\nVersion: 0.1.0+fk\n")
        (info / ENTRY_POINTS_FILE).write_text(entry_points())

    def run(
        self, code: str, *, environ: dict[str, str] | None = None, options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with this folder in front, in an environment that holds nothing else."""
        return self.start("-c", code, environ=environ, options=options)

    def start(
        self, *arguments: str | Path, environ: dict[str, str] | None = None, options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Start the interpreter with these arguments, as `run` does."""
        command = [self.python or sys.executable, *options, *arguments]
        path = {} if self.python else {"PYTHONPATH": str(self.root)}
        env = {**path, "PATH": os.environ["PATH"], **(environ or {})}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=self.root.parent)


def complete_site(root: Path, *, core: str = "vendor", driver: bool = True) -> FakeSite:
    """A site in which `import torch_fl` works; without `driver`, the part that libcaffe2_nvrtc needs is absent."""
    return complete(FakeSite(root=root / "site"), core=core, driver=driver)


def hooked_site(root: Path, *, core: str = "vendor", driver: bool = True) -> FakeSite:
    """The same as the site-packages of a virtual environment, with the wheel's hook in it."""
    python = root / "env/bin/python"
    python.parent.mkdir(parents=True)
    base = Path(sys.base_prefix, "bin", f"python{PYTHON}")
    python.symlink_to(base)
    (root / "env/pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    site = complete(
        FakeSite(root=root / f"env/lib/python{PYTHON}/site-packages", python=python), core=core, driver=driver
    )
    site.write_hook()
    return site


def complete(site: FakeSite, *, core: str, driver: bool) -> FakeSite:
    """Fill the folder."""
    site.write_torch()
    site.write_plugin()
    site.write_driver("libdriver.so.5", *(["libdrivercore.so.1"] if driver else []))
    site.write_bundle({**(CORE if core == "vendor" else {}), **DEVICE, **NVRTC}, core=core)
    return site
