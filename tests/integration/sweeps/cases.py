"""Which tests there are: operators of PyTorch's database by data type, for each kind of sweep."""

from __future__ import annotations

import unittest
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.testing._internal import common_methods_invocations as database

if TYPE_CHECKING:
    from collections.abc import Iterator

# Single precision first: where an operator has none of these, its first type by name is taken.
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.int64,
    torch.bool,
)
# Gradients of half precision are those of single precision, rounded; one pass over real and complex numbers is enough.
BACKWARD_DTYPES = (torch.float32, torch.complex64)
SHORT_DTYPES = (torch.float32, torch.int64)

# CUDA kernels want these arguments on the host, and so does this device.
HOST_ARGUMENTS = frozenset({"tensor_split"})

# One operator of each family, for a quick pass: every way in which a call can reach the vendor.
CORE = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "abs",
        "exp",
        "sin",
        "tanh",
        "sigmoid",
        "sqrt",
        "pow",
        "remainder",
        "floor_divide",
        "where",
        "clamp",
        "lerp",
        "addcmul",
        "isnan",
        "eq",
        "logical_and",
        "bitwise_and",
        "sum",
        "mean",
        "amax",
        "argmax",
        "all",
        "any",
        "var",
        "std",
        "logsumexp",
        "cumsum",
        "cumprod",
        "norm",
        "prod",
        "count_nonzero",
        "nansum",
        "aminmax",
        "sort",
        "topk",
        "kthvalue",
        "median",
        "unique",
        "searchsorted",
        "bucketize",
        "histc",
        "mm",
        "bmm",
        "matmul",
        "addmm",
        "baddbmm",
        "einsum",
        "dot",
        "outer",
        "linalg.norm",
        "linalg.inv",
        "linalg.solve",
        "linalg.svd",
        "linalg.qr",
        "linalg.cholesky",
        "linalg.eigh",
        "linalg.det",
        "cat",
        "stack",
        "split",
        "chunk",
        "index_select",
        "index_add",
        "index_copy",
        "gather",
        "scatter",
        "scatter_add",
        "masked_fill",
        "masked_select",
        "nonzero",
        "take",
        "put",
        "index_put",
        "roll",
        "flip",
        "tril",
        "triu",
        "diag",
        "diagonal",
        "expand",
        "permute",
        "reshape",
        "squeeze",
        "unfold",
        "view",
        "as_strided",
        "repeat_interleave",
        "zeros_like",
        "full_like",
        "arange",
        "linspace",
        "fft.fft",
        "fft.irfft",
        "stft",
        "nn.functional.conv2d",
        "nn.functional.conv_transpose2d",
        "nn.functional.linear",
        "nn.functional.batch_norm",
        "nn.functional.layer_norm",
        "nn.functional.group_norm",
        "softmax",
        "log_softmax",
        "nn.functional.gelu",
        "nn.functional.relu",
        "nn.functional.silu",
        "nn.functional.max_pool2d",
        "nn.functional.avg_pool2d",
        "nn.functional.adaptive_avg_pool2d",
        "nn.functional.interpolate",
        "nn.functional.grid_sample",
        "nn.functional.embedding",
        "nn.functional.embedding_bag",
        "nn.functional.cross_entropy",
        "nn.functional.nll_loss",
        "nn.functional.mse_loss",
        "nn.functional.ctc_loss",
        "nn.functional.scaled_dot_product_attention",
        "nn.functional.pad",
        "nn.functional.dropout",
        "normal",
        "bernoulli",
        "multinomial",
        "uniform",
        "complex",
        "view_as_real",
        "conj",
        "real",
        "angle",
    ]
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One operator with one data type."""

    op: Any
    dtype: torch.dtype

    @property
    def id(self) -> str:
        """The parameter in a test's id; it names operator and variant, without brackets or spaces."""
        variant = f".{self.op.variant_test_name}" if self.op.variant_test_name else ""
        return f"{self.op.name}{variant}-{str(self.dtype).removeprefix('torch.')}".replace(" ", "_")


def _by_preference(supported: set[torch.dtype], wanted: tuple[torch.dtype, ...]) -> tuple[torch.dtype, ...]:
    chosen = tuple(dtype for dtype in wanted if dtype in supported)
    return chosen or tuple(sorted(supported, key=str))[:1]


def running_dtypes(op: Any, *, software: bool) -> set[torch.dtype]:
    """What CUDA kernels support; on a software device, whose kernels are the CPU's, only what these support too."""
    supported = set(op.supported_dtypes("cuda"))
    return supported & set(op.supported_dtypes("cpu")) if software else supported


def _backward_dtypes(op: Any, *, software: bool) -> set[torch.dtype]:
    supported = set(op.supported_backward_dtypes("cuda"))
    return supported & set(op.supported_backward_dtypes("cpu")) if software else supported


@cache
def operators() -> tuple[Any, ...]:
    """Every operator of the database, lists of tensors included, each once."""
    foreach = [
        op
        for name in dir(database)
        if name.startswith("foreach_") and name.endswith("_op_db")
        for op in getattr(database, name)
    ]
    found = {Case(op=op, dtype=torch.float32).id: op for op in (*database.op_db, *foreach)}
    return tuple(found.values())


def _kept(op: Any, kind: str) -> bool:
    if kind == "inplace":
        return op.inplace_variant is not None
    if kind == "out":
        # The database says so of lists of tensors too, which have no out= form in Python.
        return bool(op.supports_out) and not op.name.startswith("_foreach_")
    if kind == "errors":
        theirs = op.get_decorators("TestCommon", "test_errors", "cuda", torch.float32, {})
        return op.error_inputs_func is not None and unittest.expectedFailure not in theirs
    return kind != "backward" or bool(op.supports_autograd)


def _dtypes(op: Any, kind: str, *, software: bool) -> tuple[torch.dtype, ...]:
    if kind == "backward":
        supported = _backward_dtypes(op, software=software)
        return tuple(dtype for dtype in BACKWARD_DTYPES if dtype in supported)
    supported = running_dtypes(op, software=software)
    single = dict.fromkeys(("errors", "siblings", "strides"), DTYPES[:1])
    wanted = {"forward": DTYPES, **single}.get(kind, SHORT_DTYPES)
    return _by_preference(supported, wanted)


def catalogue(kind: str, *, software: bool, core: bool) -> Iterator[Case]:
    """Yield the cases of one kind of sweep: forward, strided, backward, inplace, out, siblings, strides or errors.

    The core set has one operator of each family in single precision, and results only.
    """
    if core and kind != "forward":
        return
    for op in operators():
        if (core and op.name not in CORE) or not _kept(op, kind):
            continue
        dtypes = _dtypes(op, kind, software=software)
        for dtype in dtypes[:1] if core else dtypes:
            yield Case(op=op, dtype=dtype)
