"""What each forged vendor looks like, as data; the traits are those of the vendors' own installations."""

from __future__ import annotations

from tests.forge.shapes import CLibrary, DeviceLibrary, Edit, Flavour

TORCH_LIB = "site-packages/torch/lib"
TORCH_LIBS = "site-packages/torch.libs"
_DEVICE_OBJECTS = (
    "alias",
    "boxing",
    "generator",
    "hooks",
    "kernels",
    "kernels_rnn",
    "layouts",
    "linalg",
    "registration",
)
C10_OBJECTS = ("device", "allocator", "guard")
"""Sources of libc10_cuda, beside the glue to the runtime's names."""
_RUNTIME = ("driver/runtime.c", "driver/streams.c")


def _runtime_defines(prefix: str, device: str, version: int, *more: str) -> tuple[str, ...]:
    return (f"PREFIX={prefix}", f'DEVICE_NAME="{device}"', f"RUNTIME_VERSION={version}", *more)


def _cuda_shaped(linked: tuple[str, ...], traits: str) -> tuple[DeviceLibrary, ...]:
    c10 = f"{TORCH_LIB}/libc10_cuda.so"
    torch = f"{TORCH_LIB}/libtorch_cuda.so"
    return (
        DeviceLibrary(name="libtorch_cuda.so", objects=(*_DEVICE_OBJECTS, traits), needs=(c10, *linked)),
        DeviceLibrary(name="libtorch_cuda_linalg.so", objects=("linalg_library",), needs=(torch, c10)),
    )


_NEEDS_CUDA = (
    Edit(name="libtorch.so", add_needed=("libtorch_cuda.so",)),
    Edit(name="libtorch_python.so", add_needed=("libtorch_cuda.so",)),
)

_MC_RUNTIME = "sdk/lib/libmcruntime.so"
_MC_BRIDGE = "sdk/tools/cu-bridge/lib/libruntime_cu.so"
_MC_SYMBOL = "sdk/lib/libsymbol_cu.so"
METAX = Flavour(
    local="metax3.3.0",
    cuda="11.6",
    runtime=CLibrary(
        path=_MC_RUNTIME,
        sources=_RUNTIME,
        defines=_runtime_defines("mc", "MetaX (software)", 30300, "HAS_DEVICE_GET_NAME"),
    ),
    after=(
        CLibrary(
            path=_MC_BRIDGE, symbol="wcudaRuntimeGetVersion", calls=("mcRuntimeGetVersion",), needs=(_MC_RUNTIME,)
        ),
        CLibrary(path=_MC_SYMBOL, symbol="mcSymbolTableVersion"),
    ),
    c10="libc10_cuda.so",
    device=_cuda_shaped((_MC_RUNTIME, _MC_BRIDGE, _MC_SYMBOL), "traits_metax"),
    edits=_NEEDS_CUDA,
    fork_symbols=("_ZN2at4maca24getCurrentMACABlasHandleEv", "_ZN2at4maca19getDevicePropertiesEv"),
    sdk_files=(("Version.txt", "Version:3.3.0\n"),),
    bare=True,
)

_PPU_LIB = "sdk/CUDA_SDK/lib64"
_PPU_DRIVER = CLibrary(
    path=f"{_PPU_LIB}/libcuda.so.1",
    sources=("driver/driver.c",),
    defines=('DEVICE_NAME="PPU (software)"', "RUNTIME_VERSION=13000"),
)
_MKL_NAMES = ("libmkl_core.so.1", "libmkl_gnu_thread.so.1", "libmkl_intel_lp64.so.1")
PPU = Flavour(
    local="",
    cuda="13.0",
    before=(
        _PPU_DRIVER,
        *(CLibrary(path=f"mkl/{name}", symbol=f"software_{name[3:-5]}_version") for name in _MKL_NAMES),
    ),
    runtime=CLibrary(
        path=f"{_PPU_LIB}/libcudart.so.13",
        sources=_RUNTIME,
        defines=_runtime_defines("cuda", "PPU (software)", 13000, 'DRIVER_LIBRARY="libcuda.so.1"'),
        link="libcudart.so",
        versioned=True,
    ),
    after=(CLibrary(path=f"{_PPU_LIB}/libnccl.so.2", symbol="ncclGetVersion"),),
    c10="libc10_cuda.so",
    device=_cuda_shaped((f"{_PPU_LIB}/libcudart.so.13", _PPU_DRIVER.path, f"{_PPU_LIB}/libnccl.so.2"), "traits_ppu"),
    edits=(*_NEEDS_CUDA, Edit(name="libtorch_cpu.so", add_needed=_MKL_NAMES)),
    sdk_files=(("VERSION", "2.0.0\n"),),
    mkl_dir="mkl",
)

# Libraries grafted into the distribution, by their mangled names, each after what it needs. `libmpi` is a link out
# of the folder, to the MPI of the machine, whose own soname is plain.
_GRAFTED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("libgflags-8aee0f6c.so.2.1.2", ()),
    ("libunwind-4d1b2a37.so.8.0.1", ()),
    ("libglog-6ed04f2c.so.0.0.0", ("libgflags-8aee0f6c.so.2.1.2", "libunwind-4d1b2a37.so.8.0.1")),
    ("libz-81f0c6b2.so.1.2.11", ()),
    ("liblzma-27c9a3d5.so.5.2.4", ()),
    ("libxml2-b90d4e1f.so.2.9.7", ("libz-81f0c6b2.so.1.2.11", "liblzma-27c9a3d5.so.5.2.4")),
    ("libpciaccess-5e08f7c4.so.0.11.1", ()),
    ("libnuma-c3a96d28.so.1.0.0", ()),
    (
        "libhwloc-1f7b5e90.so.15.5.2",
        ("libxml2-b90d4e1f.so.2.9.7", "libpciaccess-5e08f7c4.so.0.11.1", "libnuma-c3a96d28.so.1.0.0"),
    ),
    ("libevent_core-9d62f0ab.so.2.1.8", ()),
    ("libevent_pthreads-70e4c8d1.so.2.1.8", ("libevent_core-9d62f0ab.so.2.1.8",)),
    (
        "libopen-pal-e25a1b6f.so.40.30.2",
        ("libhwloc-1f7b5e90.so.15.5.2", "libevent_pthreads-70e4c8d1.so.2.1.8"),
    ),
    ("libopen-rte-08d7f3c9.so.40.30.2", ("libopen-pal-e25a1b6f.so.40.30.2",)),
    ("libmpi-3fcb240d.so.40.40.3", ("libopen-rte-08d7f3c9.so.40.30.2",)),
    ("libmkl_core-a4e19c70.so", ()),
    ("libmkl_gnu_thread-6b03d5f8.so", ()),
    ("libmkl_gf_lp64-e350bb11.so", ()),
)
_MPI = "libmpi-3fcb240d.so.40.40.3"
_HCOLL = CLibrary(path="hcoll/lib/libhcoll.so.1", symbol="hcoll_get_version")
_DIRECT = (
    "libglog-6ed04f2c.so.0.0.0",
    _MPI,
    "libmkl_gf_lp64-e350bb11.so",
    "libmkl_gnu_thread-6b03d5f8.so",
    "libmkl_core-a4e19c70.so",
)


def _grafted_symbol(name: str) -> str:
    family = name.partition(".so")[0].rpartition("-")[0].removeprefix("lib").replace("-", "_")
    return f"software_{family}_version"


def _grafted(name: str, needs: tuple[str, ...]) -> CLibrary:
    calls = tuple(map(_grafted_symbol, needs))
    paths = tuple(f"{TORCH_LIBS}/{need}" for need in needs)
    if name == _MPI:
        return CLibrary(
            path=f"{TORCH_LIBS}/{name}",
            outside="mpi/lib/libmpi.so.40.40.3",
            soname="libmpi.so.40",
            symbol=_grafted_symbol(name),
            calls=(*calls, _HCOLL.symbol),
            needs=(*paths, _HCOLL.path),
        )
    return CLibrary(path=f"{TORCH_LIBS}/{name}", symbol=_grafted_symbol(name), calls=calls, needs=paths)


_HIP_RUNTIME = "sdk/lib/libgalaxyhip.so.5"
_MIOPEN = CLibrary(
    path="sdk/lib/libMIOpen.so.1", symbol="miopenGetVersion", calls=("hipRuntimeGetVersion",), needs=(_HIP_RUNTIME,)
)
_ROCBLAS = CLibrary(path="sdk/lib/librocblas.so.4", symbol="rocblas_get_version")
_OMP = CLibrary(path="sdk/llvm/lib/libomp.so", symbol="__kmpc_software_version")
_MAGMA = f"{TORCH_LIB}/libmagma.so"
DCU = Flavour(
    local="das.opt1.dtk2604",
    cuda=None,
    hip="6.3.26113",
    rocm="26.04",
    runtime=CLibrary(
        path=_HIP_RUNTIME,
        sources=_RUNTIME,
        defines=_runtime_defines("hip", "DCU (software)", 60326113, "HIP_ATTRIBUTES", "HAS_DEVICE_GET_NAME"),
    ),
    after=(
        CLibrary(
            path="sdk/cuda/cuda-12/lib64/libcudart.so.12",
            sources=("driver/shim.c",),
            needs=(_HIP_RUNTIME,),
            versioned=True,
        ),
        _MIOPEN,
        _ROCBLAS,
        _OMP,
        _HCOLL,
        *(_grafted(name, needs) for name, needs in _GRAFTED),
        CLibrary(
            path=_MAGMA,
            symbol="magma_version",
            calls=("hipRuntimeGetVersion", _OMP.symbol),
            needs=(_HIP_RUNTIME, _OMP.path),
        ),
        CLibrary(
            path=f"{TORCH_LIB}/libcaffe2_nvrtc.so",
            sources=("driver/nvrtc.c",),
            defines=("DRIVER_PROBE=hipRuntimeGetVersion",),
            needs=(_HIP_RUNTIME,),
        ),
    ),
    c10="libc10_hip.so",
    device=(
        DeviceLibrary(
            name="libtorch_hip.so",
            objects=(*_DEVICE_OBJECTS, "traits_dcu"),
            needs=(f"{TORCH_LIB}/libc10_hip.so", _MAGMA, _HIP_RUNTIME, _MIOPEN.path, _ROCBLAS.path),
        ),
    ),
    edits=(
        Edit(name="libtorch.so", add_needed=("libtorch_hip.so",)),
        Edit(name="libtorch_python.so", add_needed=("libtorch_hip.so",)),
        Edit(
            name="libtorch_cpu.so",
            add_needed=(*_DIRECT, "libgalaxyhip.so.5"),
            runpath="$ORIGIN:$ORIGIN/../../torch.libs",
        ),
        Edit(name="libtorch_global_deps.so", add_needed=(_MPI,), runpath="$ORIGIN:$ORIGIN/../../torch.libs"),
    ),
    fork_symbols=("_ZN2at4_ops22native_fuse_layer_norm4callEv", "_ZN2at4_ops21native_fuse_bias_gelu4callEv"),
    sdk_files=((".info/version", "26.04\n"),),
    extra_driver_dirs=("hcoll/lib",),
)

_CUDA_RUNTIME = "site-packages/nvidia/cu13/lib/libcudart.so.13"
_CUDA_DRIVER = CLibrary(
    path="sdk/lib64/libcuda.so.1",
    sources=("driver/driver.c",),
    defines=('DEVICE_NAME="NVIDIA (software)"', "RUNTIME_VERSION=13000"),
)
_CUDA_RUNPATH = "$ORIGIN/../../nvidia/cu13/lib:$ORIGIN"
CUDA = Flavour(
    local="cu130",
    cuda="13.0",
    before=(_CUDA_DRIVER,),
    runtime=CLibrary(
        path=_CUDA_RUNTIME,
        sources=_RUNTIME,
        defines=_runtime_defines("cuda", "NVIDIA (software)", 13000, 'DRIVER_LIBRARY="libcuda.so.1"'),
        versioned=True,
    ),
    after=(
        CLibrary(
            path=f"{TORCH_LIB}/libcaffe2_nvrtc.so",
            sources=("driver/nvrtc.c",),
            defines=("DRIVER_PROBE=cuDriverGetVersion",),
            needs=(_CUDA_DRIVER.path,),
        ),
    ),
    c10="libc10_cuda.so",
    device=(
        *_cuda_shaped((_CUDA_RUNTIME,), "traits_cuda"),
        DeviceLibrary(name="libtorch_nvshmem.so", objects=("nvshmem",), stock=("libc10.so",)),
    ),
    edits=(
        *(
            Edit(name=name, runpath=_CUDA_RUNPATH)
            for name in ("libc10.so", "libtorch_cpu.so", "libtorch_global_deps.so", "libshm.so")
        ),
        *(Edit(name=edit.name, add_needed=edit.add_needed, runpath=_CUDA_RUNPATH) for edit in _NEEDS_CUDA),
    ),
    sdk_files=(("version.json", '{"cuda": {"name": "CUDA SDK", "version": "13.0.3"}}\n'),),
    extra_driver_dirs=("sdk/lib64",),
    rpath=True,
    wheel=_CUDA_RUNTIME,
)

FLAVOURS = {"metax": METAX, "ppu": PPU, "dcu": DCU, "cuda": CUDA}
