"""What `torch.cuda` has and `torch.flagos` has not, and why."""

from __future__ import annotations

_GRAPHS = "recorded graphs are not offered"
_ALLOCATOR = "the allocator is the vendor's, and PyTorch has no vendor-neutral interface to"
_MANAGEMENT = "it is the vendor's management tool's to tell"
_RUNTIME = "it is a part of one vendor's runtime"
_BUILD = "it tells what a CUDA build was compiled with"
_OLDER = "PyTorch has replaced it"
_TYPES = "a type of PyTorch's older interface; use dtype= and device='flagos'"
_TYPED = (
    *("BFloat16", "Bool", "Byte", "Char", "ComplexDouble", "ComplexFloat"),
    *("Double", "Float", "Half", "Int", "Long", "Short"),
)

_BY_REASON = {
    _GRAPHS: (
        *("CUDAGraph", "graph", "graphs", "graph_pool_handle", "is_current_stream_capturing"),
        "make_graphed_callables",
    ),
    f"{_ALLOCATOR} its pools": ("MemPool", "use_mem_pool"),
    f"{_ALLOCATOR} its blocks": ("memory_snapshot",),
    f"{_ALLOCATOR} its limits": ("get_per_process_memory_fraction", "set_per_process_memory_fraction"),
    f"{_ALLOCATOR} its choice": (
        *("CUDAPluggableAllocator", "caching_allocator_disabled", "caching_allocator_enable"),
        *("change_current_allocator", "get_allocator_backend"),
    ),
    "statistics of pinned memory are not offered; torch.accelerator.empty_host_cache() gives back what is unused": (
        *("host_memory_stats", "host_memory_stats_as_nested_dict", "reset_accumulated_host_memory_stats"),
        "reset_peak_host_memory_stats",
    ),
    f"{_OLDER} by memory_reserved": ("memory_cached",),
    f"{_OLDER} by max_memory_reserved": ("max_memory_cached",),
    f"{_OLDER} by reset_peak_memory_stats": ("reset_max_memory_allocated", "reset_max_memory_cached"),
    f"{_OLDER} by torch.amp, with device_type='flagos'": ("amp",),
    "its ranges are for NVIDIA's tools; use torch.profiler.record_function": ("nvtx",),
    "it is for NVIDIA's tools; use torch.profiler": ("profiler",),
    _MANAGEMENT: ("clock_rate", "list_gpu_processes", "memory_usage", "power_draw", "temperature", "utilization"),
    _RUNTIME: (
        *("CudaError", "DeferredCudaCallError", "GreenContext", "check_error", "cudaStatus", "cudart", "gds"),
        "green_contexts",
    ),
    "PyTorch has no vendor-neutral interface to handles of the vendor's libraries": (
        *("current_blas_handle", "current_solver_handle"),
    ),
    _BUILD: ("get_arch_list", "get_gencode_flags", "has_half", "has_magma", "is_tf32_supported"),
    "only PyTorch's own CUDA library looks for waits": ("get_sync_debug_mode", "set_sync_debug_mode"),
    "no process group of torch.distributed takes tensors of flagos": ("comm", "nccl"),
    "it compiles CUDA sources when it runs": ("jiterator",),
    "it tunes the libraries of CUDA and ROCm from inside": ("tunable",),
    _TYPES: ("sparse", *(f"{name}{kind}" for name in _TYPED for kind in ("Tensor", "Storage"))),
}

REASONS = {name: reason for reason, names in _BY_REASON.items() for name in names}
"""Why a name is absent."""
