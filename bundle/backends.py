"""The one list of backends: what each accelerator's wheel is made of, as data.

Standard library only: the noxfile imports it, and CMake asks it (through `bundle.selection`) which backend to build.

Facts about vendor installations (file lists, SDK layouts, variables) come from the vendors' own torch packages and
SDKs; docs/backends.md gives the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bundle.backend import Backend, CoreSource, KnownAbort, Library, Role, ThirdParty, When

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BACKENDS",
    "CORE_LIBRARIES",
    "Backend",
    "CoreSource",
    "KnownAbort",
    "Library",
    "Role",
    "ThirdParty",
    "When",
]

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
    settled_variables=(("METAX_KERNEL", "OFF"),),
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
    gems_vendor="nvidia",
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
    gems_vendor="nvidia",
)

BACKENDS: Mapping[str, Backend] = {backend.name: backend for backend in (METAX, PPU, DCU, CUDA)}

CORE_LIBRARIES: tuple[Library, ...] = (*_CORE, _SHM)
"""What `--core vendor` adds to a backend whose core is otherwise stock torch's."""
