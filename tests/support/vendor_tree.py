"""Fake vendor installations made of tiny ELF files: the shape of each vendor's torch, and of its SDK."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bundle.backends import BACKENDS, CoreSource
from bundle.gather import gather, read_stock
from bundle.plan import BundlePlan, plan_bundle
from bundle.sdk import resolve_sdk
from bundle.vendor import find_vendor_torch
from tests.support.tiny_elf import ElfSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

STOCK_VERSION = "2.10.0+cpu"
STOCK_NAMES = (
    *("libc10.so", "libgomp.so.1", "libshm.so", "libtorch.so", "libtorch_cpu.so"),
    *("libtorch_global_deps.so", "libtorch_python.so"),
)
MKL = ("libmkl_core.so.1", "libmkl_gnu_thread.so.1", "libmkl_intel_lp64.so.1")
GRAFTED = tuple(f"lib{name}-0a1b2c3d.so.{number}" for number, name in enumerate("abcdefghijklmnopq"))
"""Seventeen grafted libraries; torch needs the first five, each of the others is needed by the one five before it."""

VERSIONS = {
    "metax": ("2.10.0+metax3.3.0", {"cuda": "11.6"}),
    "ppu": ("2.10.0", {"cuda": "13.0"}),
    "dcu": ("2.10.0+das.opt1.dtk2604", {"hip": "6.3.26113", "rocm": "26.04"}),
    "cuda": ("2.10.0+cu130", {"cuda": "13.0"}),
}
DRIVERS = {
    "metax": {"lib/libmcruntime.so": "libmcruntime.so"},
    "ppu": {"CUDA_SDK/lib64/libcudart.so": "libcudart.so.13", "CUDA_SDK/lib64/libcudart.so.13": "libcudart.so.13"},
    "dcu": {"lib/libgalaxyhip.so.5": "libgalaxyhip.so.5", "cuda/cuda-12/lib64/libcudart.so.12": "libcudart.so.12"},
    "cuda": {},
}
RUNTIME = {
    "metax": "libmcruntime.so",
    "ppu": "libcudart.so.13",
    "dcu": "libgalaxyhip.so.5",
    "cuda": "libcudart.so.13",
}
METADATA = """\
Metadata-Version: 2.4
Name: torch
Version: {version}
Requires-Dist: filelock
Requires-Dist: nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"
Requires-Dist: cuda-toolkit[cudart,nvrtc]==13.0.3; platform_system == "Linux"
Requires-Dist: cuda-bindings<14,>=13.0.3
Requires-Dist: triton==3.7.1
"""


@dataclass(frozen=True, kw_only=True)
class VendorTree:
    """Where the parts of one fake installation are."""

    backend: str
    torch: Path
    sdk_root: Path
    stock_lib: Path
    mkl: Path
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def lib(self) -> Path:
        """The vendor's torch/lib."""
        return self.torch / "lib"


def make_vendor(backend: str, root: Path) -> VendorTree:
    """Write a complete installation of one vendor below `root`."""
    site = root / "vendor" / "lib" / "python3.12" / "site-packages"
    tree = VendorTree(
        backend=backend,
        torch=site / "torch",
        sdk_root=root / "sdk",
        stock_lib=root / "stock" / "torch" / "lib",
        mkl=root / "mkl",
        environ={"FLAGOS_PPU_MKL_DIR": str(root / "mkl")},
    )
    for name, spec in torch_libraries(backend).items():
        ElfSpec(**{"soname": name, "rpath": "$ORIGIN:/vendor/build/lib", **spec}).write(tree.lib / name)
    version, fields = VERSIONS[backend]
    (tree.torch / "version.py").write_text(version_text(version, fields))
    info = site / f"torch-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA.format(version=version))
    for place, soname in DRIVERS[backend].items():
        ElfSpec(soname=soname).write(tree.sdk_root / place)
    tree.sdk_root.mkdir(exist_ok=True)
    for name in STOCK_NAMES:
        ElfSpec(soname=name).write(tree.stock_lib / name)
    if backend == "ppu":
        for name in MKL:
            ElfSpec(soname=name, needed=("libc.so.6",)).write(tree.mkl / name)
    if backend == "dcu":
        _graft(site / "torch.libs", root / "opt" / "mpi")
    return tree


def version_text(version: str, fields: Mapping[str, str]) -> str:
    """Return a version.py as torch's build writes it: every field is there, most of them None."""
    lines = ["from typing import Optional", "", f"__version__ = {version!r}", "debug = False"]
    lines += [f"{name}: Optional[str] = {fields.get(name)!r}" for name in ("cuda", "hip", "rocm", "xpu")]
    return "\n".join(lines) + "\n"


def torch_libraries(backend: str) -> dict[str, dict[str, Any]]:
    """Return the vendor's torch/lib as specs by file name."""
    runtime = RUNTIME[backend]
    base = ("libgomp.so.1", "libstdc++.so.6", "libc.so.6")
    device = "hip" if backend == "dcu" else "cuda"
    grafted = {"ppu": MKL, "dcu": GRAFTED[:5]}.get(backend, ())
    libraries: dict[str, dict[str, Any]] = {
        "libc10.so": {"needed": base},
        "libtorch_cpu.so": {"needed": ("libc10.so", runtime, *grafted, *base), "defined": ("at_add",)},
        "libtorch.so": {"needed": ("libtorch_cpu.so", f"libtorch_{device}.so")},
        "libtorch_global_deps.so": {"needed": base},
        "libshm.so": {"needed": ("libtorch_cpu.so", "libc10.so")},
        "libtorch_python.so": {"needed": ("libtorch.so", "libshm.so", "libtorch_cpu.so", f"libtorch_{device}.so")},
        f"libc10_{device}.so": {"needed": ("libc10.so", runtime), "defined": ("device_stream",)},
        f"libtorch_{device}.so": {"needed": (f"libc10_{device}.so", "libtorch_cpu.so", "libc10.so")},
        "libcaffe2_nvrtc.so": {"needed": ("libnvrtc.so.13", "libcuda.so.1")},
        "libtorch_cuda_linalg.so": {"needed": (f"libtorch_{device}.so", "libtorch_cpu.so")},
        "libgomp.so.1": {},
    }
    if backend == "dcu":
        del libraries["libtorch_cuda_linalg.so"]
        libraries["libcaffe2_nvrtc.so"] = {"needed": (runtime,)}
        libraries["libmagma.so"] = {"needed": ("libtorch_cpu.so", "libomp.so")}
        libraries["libtorch_hip.so"]["needed"] += ("libmagma.so",)
    if backend == "cuda":
        # Under-linked, as the real one: no DT_NEEDED for the library that defines the symbol.
        libraries["libtorch_nvshmem.so"] = {"needed": ("libtorch_cpu.so",), "undefined": ("device_stream",)}
        libraries["libtorch_cuda.so"]["needed"] += ("libtorch_nvshmem.so",)
    return libraries


def _graft(folder: Path, outside: Path) -> None:
    for number, name in enumerate(GRAFTED):
        needed = ("libc.so.6", *GRAFTED[number + 5 : number + 6])
        spec = ElfSpec(soname=name, needed=needed, runpath="$ORIGIN")
        if number != 4:
            spec.write(folder / name)
            continue
        # As the real libmpi: a link that leaves the folder.
        (folder / name).symlink_to(spec.write(outside / "libe.so.4"))


def plan_of(tree: VendorTree, *, core: CoreSource | None = None, version: str | None = None) -> BundlePlan:
    """Run everything up to the plan on a fake installation, as the bundle stage does."""
    backend = BACKENDS[tree.backend]
    vendor = find_vendor_torch(backend, {}, explicit=tree.torch, declared_version=version)
    sdk = resolve_sdk(backend, {}, explicit=tree.sdk_root)
    stock = read_stock(tree.stock_lib, STOCK_VERSION)
    return plan_bundle(gather(backend, vendor, sdk, stock, environ=tree.environ, core=core))


def rewrite(tree: VendorTree, name: str, **changes: Any) -> None:
    """Replace one of the vendor's libraries by one that differs in `changes`."""
    spec = {"soname": name, **torch_libraries(tree.backend)[name], **changes}
    ElfSpec(**spec).write(tree.lib / name)
