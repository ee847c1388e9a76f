"""The one list of backends: what each accelerator's wheel is made of, as data.

Standard library only, and no import from the rest of `bundle`: the noxfile imports it, and CMake runs it as a script
(`python bundle/backends.py`) to learn which backend the environment asks for.

Facts about vendor installations (file lists, SDK layouts, variables) come from the vendors' own torch packages and
SDKs; docs/backends.md gives the table.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Role(str, Enum):
    """What a bundled file is for; written into `_bundle.json`."""

    CORE = "core"
    DEVICE = "device"
    THIRD_PARTY = "third-party"
    DATA = "data"


class CoreSource(str, Enum):
    """Where libc10, libtorch_cpu and their kin come from at run time."""

    VENDOR = "vendor"
    STOCK = "stock"


class When(str, Enum):
    """When the runtime opens a library: always, or only where its driver is present."""

    ALWAYS = "always"
    DRIVER = "driver"


@dataclass(frozen=True, kw_only=True)
class Library:
    """One file of the vendor's `torch/lib`.

    `required=False` means that some builds of the vendor lack it; `stock_fallback` that stock torch's copy then serves.
    """

    name: str
    role: Role
    required: bool = True
    stock_fallback: bool = False
    when: When = When.ALWAYS


@dataclass(frozen=True, kw_only=True)
class ThirdParty:
    """Where libraries that are neither torch nor driver come from.

    `torch_libs` takes every file of the `torch.libs` folder beside the vendor's torch package (links resolved);
    `names` are taken from `directory`, which the environment variable `variable` overrides.
    """

    torch_libs: bool = False
    names: tuple[str, ...] = ()
    directory: str = ""
    variable: str = ""


@dataclass(frozen=True, kw_only=True)
class KnownAbort:
    """A test whose operator kills the process in the vendor's own kernel, also without this plugin."""

    test: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One wheel flavour; adding a vendor means adding one of these.

    Paths in `driver_dirs` and `sdk_probe` are relative to the SDK root unless absolute; a `*` in `driver_dirs` is
    expanded in the SDK of the build machine. `driver_sonames` are `fnmatch` patterns of libraries that belong to the
    target machine, for SDKs that are not fully installed where the wheel is built. `told_by_sdk` marks a backend that
    shares its ACCELERATOR value with another and is told apart by one of its `sdk_variables` being set.
    `distribution_prefix` lists how the names of those requirements of the vendor's torch start that bring its runtime;
    the wheel requires the same.
    """

    name: str
    title: str
    accelerator: str
    python: str
    label: str
    bundle_dir: str
    probe: str
    libraries: tuple[Library, ...]
    runtime_prefix: str
    runtime_libraries: tuple[str, ...]
    sdk_variables: tuple[str, ...] = ()
    sdk_defaults: tuple[str, ...] = ()
    sdk_probe: str = ""
    driver_dirs: tuple[str, ...] = ()
    driver_sonames: tuple[str, ...] = ()
    build_variables: tuple[tuple[str, str], ...] = ()
    third_party: ThirdParty = ThirdParty()
    core: CoreSource = CoreSource.VENDOR
    version_file: bool = False
    version_fields: tuple[str, ...] = ("cuda", "hip", "rocm")
    vendor_lib_variable: str = "FLAGOS_VENDOR_TORCH_LIB"
    marked_by: tuple[str, ...] = ()
    distribution_prefix: tuple[str, ...] = ()
    told_by_sdk: bool = False
    gems_vendor: str = "nvidia"
    mm_tolerance: float = 9.5e-06
    known_aborts: tuple[KnownAbort, ...] = ()

    @property
    def bundle_files(self) -> int | None:
        """Files in a complete bundle, or None where the vendor decides (`torch.libs`)."""
        if self.third_party.torch_libs:
            return None
        return len(self.libraries) + len(self.third_party.names) + int(self.version_file)


_CORE = tuple(
    Library(name=name, role=Role.CORE)
    for name in ("libc10.so", "libtorch_cpu.so", "libtorch.so", "libtorch_global_deps.so", "libtorch_python.so")
)
# A vendor image was seen to ship eight libraries without libshm; stock torch's copy then serves libtorch_python.
_SHM = Library(name="libshm.so", role=Role.CORE, required=False, stock_fallback=True)
# Needs the driver itself, so it cannot be opened on a machine without one.
_NVRTC = Library(name="libcaffe2_nvrtc.so", role=Role.DEVICE, when=When.DRIVER)
_CUDA_DEVICE = tuple(
    Library(name=name, role=Role.DEVICE) for name in ("libc10_cuda.so", "libtorch_cuda.so", "libtorch_cuda_linalg.so")
)

METAX = Backend(
    name="metax",
    title="MetaX MACA",
    accelerator="metax",
    build_variables=(("FLAGOS_METAX_BOXING", "1"),),
    python="3.12",
    label="metax",
    bundle_dir="lib_maca",
    probe="libtorch_cuda.so",
    libraries=(*_CORE, *_CUDA_DEVICE, _SHM),
    sdk_variables=("METAX_PATH", "METAX_HOME", "MACA_PATH", "MACA_HOME"),
    sdk_defaults=("/opt/maca",),
    sdk_probe="lib/libmcruntime.so",
    driver_dirs=(
        "lib",
        "lib64",
        "tools/cu-bridge/lib",
        "mxgpu_llvm/lib",
        "ompi/lib",
        "ucx/lib",
        "mxshmem/lib",
        "/opt/mxdriver/lib",
    ),
    driver_sonames=("libmc*.so*", "libruntime_cu.so*", "libsymbol_cu.so*", "libmx*.so*"),
    runtime_prefix="mc",
    runtime_libraries=("libmcruntime.so",),
    vendor_lib_variable="FLAGOS_MACA_TORCH_LIB",
    marked_by=("metax", "maca"),
    gems_vendor="metax",
    mm_tolerance=1.1e-02,
)

PPU = Backend(
    name="ppu",
    title="T-Head PPU",
    accelerator="cuda",
    told_by_sdk=True,
    build_variables=(("FLAGGEMS_KERNEL", "OFF"),),
    python="3.12",
    label="ppu",
    bundle_dir="lib_ppu",
    probe="libtorch_cuda.so",
    libraries=(*_CORE, *_CUDA_DEVICE, _SHM),
    third_party=ThirdParty(
        names=("libmkl_core.so.1", "libmkl_gnu_thread.so.1", "libmkl_intel_lp64.so.1"),
        directory="/usr/local/lib",
        variable="FLAGOS_PPU_MKL_DIR",
    ),
    sdk_variables=("PPU_SDK", "PPU_HOME"),
    sdk_defaults=("/usr/local/PPU_SDK", "/usr/local/PPU-SDK", "/opt/PPU-SDK"),
    sdk_probe="CUDA_SDK/lib64/libcudart.so",
    driver_dirs=("CUDA_SDK/lib64", "lib", "lib64"),
    driver_sonames=("libcud*.so*", "libcu*.so*", "libnv*.so*", "libnccl.so*", "libhgpti.so*"),
    runtime_prefix="cuda",
    runtime_libraries=("libcudart.so.13", "libcudart.so.12"),
    vendor_lib_variable="FLAGOS_PPU_TORCH_LIB",
    known_aborts=(
        KnownAbort(
            test="test_matmul_degenerate.py::test_bmm_of_degenerate_shape_must_equal_cpu[1-1-1]",
            reason="the vendor's bmm kernel aborts the process for batch 1, 1x1 times 1x1, also natively",
        ),
    ),
)

DCU = Backend(
    name="dcu",
    title="Hygon DCU",
    accelerator="dcu",
    build_variables=(("FLAGGEMS_KERNEL", "ON"),),
    python="3.10",
    label="dtk",
    bundle_dir="lib_dcu",
    probe="libtorch_hip.so",
    libraries=(
        *_CORE,
        Library(name="libcaffe2_nvrtc.so", role=Role.CORE, when=When.DRIVER),
        Library(name="libc10_hip.so", role=Role.DEVICE),
        Library(name="libtorch_hip.so", role=Role.DEVICE),
        Library(name="libmagma.so", role=Role.DEVICE),
        _SHM,
    ),
    third_party=ThirdParty(torch_libs=True),
    sdk_variables=("DTK_ROOT", "ROCM_PATH"),
    sdk_defaults=("/opt/dtk",),
    sdk_probe="lib/libgalaxyhip.so.5",
    driver_dirs=(
        "cuda/cuda-*/lib64",
        "lib",
        "hip/lib",
        "lib64",
        "aillvm/lib",
        "llvm/lib",
        ".hyhal/rocm_smi/lib",
        "/opt/hyhal/lib",
        "/opt/mpi/lib",
        "/opt/mellanox/hcoll/lib",
    ),
    driver_sonames=(
        "libgalaxyhip.so*",
        "libMIOpen*.so*",
        "libroc*.so*",
        "libhip*.so*",
        "librccl.so*",
        "libunwind.so*",
        "libomp.so*",
        "libhydmi.so*",
        "libhydrm.so*",
        "libamd_smi.so*",
        "libcudart.so*",
        "libh*coll.so*",
    ),
    runtime_prefix="hip",
    runtime_libraries=("libgalaxyhip.so.5",),
    version_file=True,
    vendor_lib_variable="FLAGOS_DCU_TORCH_LIB",
    marked_by=("dtk", "das"),
    gems_vendor="hygon",
)

CUDA = Backend(
    name="cuda",
    title="NVIDIA CUDA",
    accelerator="cuda",
    build_variables=(("FLAGGEMS_KERNEL", "OFF"),),
    python="3.12",
    label="",
    bundle_dir="lib_cuda",
    probe="libtorch_cuda.so",
    libraries=(
        *_CUDA_DEVICE,
        # Builds without NVSHMEM exist; in those that have it libtorch_cuda needs it.
        Library(name="libtorch_nvshmem.so", role=Role.DEVICE, required=False),
        _NVRTC,
    ),
    core=CoreSource.STOCK,
    sdk_variables=("CUDA_HOME", "CUDA_PATH"),
    sdk_defaults=("/usr/local/cuda",),
    driver_sonames=("libcuda.so.1", "libcu*.so*", "libnv*.so*", "libnccl.so*"),
    runtime_prefix="cuda",
    runtime_libraries=("libcudart.so.13", "libcudart.so.12"),
    # Since CUDA 13 most of them come through the metapackage cuda-toolkit and its extras.
    distribution_prefix=("nvidia-", "cuda-toolkit"),
)

BACKENDS: Mapping[str, Backend] = {backend.name: backend for backend in (METAX, PPU, DCU, CUDA)}

CORE_LIBRARIES: tuple[Library, ...] = (*_CORE, _SHM)
"""What `--core vendor` adds to a backend whose core is otherwise stock torch's."""


def describe_choices() -> str:
    """One line per backend: the variables that select it, for messages."""
    lines = []
    for backend in BACKENDS.values():
        variables = " ".join(f"{key}={value}" for key, value in build_environment(backend))
        needs = f" with {backend.sdk_variables[0]} set" if backend.told_by_sdk else ""
        lines.append(f"  {backend.name:<6} {backend.title:<12} {variables}{needs}")
    return "\n".join(lines)


def build_environment(backend: Backend) -> tuple[tuple[str, str], ...]:
    """Return the variables that a compile of this backend sets, ACCELERATOR first."""
    return (("ACCELERATOR", backend.accelerator), *backend.build_variables)


def from_environment(environ: Mapping[str, str]) -> Backend:
    """Return the backend that ACCELERATOR and its companions ask for.

    PPU shares ACCELERATOR=cuda with NVIDIA and is told apart by its SDK variable being set.

    Raises:
        LookupError: no or an unknown ACCELERATOR, or a MetaX variable that would be overruled; the text lists the
            choices.
    """
    accelerator = environ.get("ACCELERATOR", "")
    known = sorted({backend.accelerator for backend in BACKENDS.values()})
    if not accelerator:
        raise LookupError(
            f"ACCELERATOR is not set, so there is nothing to build for; choose one of\n{describe_choices()}"
        )
    matching = [backend for backend in BACKENDS.values() if backend.accelerator == accelerator]
    if not matching:
        raise LookupError(
            f"ACCELERATOR={accelerator!r} is unknown; expected one of {', '.join(known)}:\n{describe_choices()}"
        )
    if "METAX_KERNEL" in environ and METAX in matching and environ.get("FLAGOS_METAX_BOXING") != "1":
        raise LookupError(
            f"METAX_KERNEL={environ['METAX_KERNEL']!r} alone has no effect: FLAGOS_METAX_BOXING=1 is what turns the "
            "native MetaX kernels off (-DMETAX_KERNEL=OFF); set that instead"
        )
    named = [
        backend
        for backend in matching
        if backend.told_by_sdk and any(environ.get(variable) for variable in backend.sdk_variables)
    ]
    return (named or [backend for backend in matching if not backend.told_by_sdk])[0]


def cmake_settings(backend: Backend, environ: Mapping[str, str]) -> str:
    """Return `set()` commands that hand this backend's data to CMake."""
    flaggems = environ.get("FLAGGEMS_KERNEL", dict(backend.build_variables).get("FLAGGEMS_KERNEL", "OFF"))
    values = {
        "FLAGOS_BACKEND": backend.name,
        "FLAGOS_ACCELERATOR": backend.accelerator,
        "FLAGOS_BUNDLE_DIR": backend.bundle_dir,
        "FLAGOS_DRIVER_DIRS": ";".join(target_driver_dirs(backend)),
        "FLAGOS_STOCK_CORE": "ON" if backend.core is CoreSource.STOCK else "OFF",
        "FLAGOS_RUNTIME_PREFIX": backend.runtime_prefix,
        "FLAGOS_RUNTIME_LIBRARIES": ";".join(backend.runtime_libraries),
        "FLAGOS_FLAGGEMS_PYTHON": "OFF" if flaggems.upper() in {"", "0", "OFF", "FALSE", "NO"} else "ON",
        "FLAGOS_METAX_KERNEL": "OFF",
    }
    return "\n".join(f'set({key} "{value}")' for key, value in values.items()) + "\n"


def target_driver_dirs(backend: Backend) -> tuple[str, ...]:
    """Return the driver directories under the SDK's default root, as they are on a target machine.

    Entries with a wildcard are left out: only an SDK at hand can expand them.
    """
    if not backend.sdk_defaults:
        return ()
    root = backend.sdk_defaults[0]
    return tuple(
        entry if entry.startswith("/") else f"{root}/{entry}" for entry in backend.driver_dirs if "*" not in entry
    )


def main() -> int:
    """Print the CMake settings of the backend that the environment asks for; exit 2 if it asks for none."""
    try:
        backend = from_environment(os.environ)
    except LookupError as err:
        print(f"torch_fl: error: {err}", file=sys.stderr)  # noqa: T201 - CMake reads this script's output
        return 2
    print(cmake_settings(backend, os.environ), end="")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
