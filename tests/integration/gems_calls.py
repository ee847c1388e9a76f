"""Calls of ATen operators, as PyTorch's database of operators leads to them: recorded on the CPU, kept in files.

Made by `gems_sweep.py collect`, for gems_sweep.py to make again elsewhere.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLES = 8
CALLS_OF_A_KIND = 3
MOST = 24
LARGEST = 200_000
DTYPES = (torch.float32, torch.int64, torch.bool)
# What arguments may be: what a file can hold, so no generators; calls with others are not recorded.
KEPT = (torch.Tensor, torch.dtype, torch.device, torch.layout, torch.memory_format, int, float, str, type(None))


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return every tensor of a nested value, in order."""
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


def copied(value: Any, device: str) -> Any:
    """Copy a nested value's tensors to a device, with their strides; devices among it follow."""

    def copy(leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return torch.device(device)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        leaf = leaf.detach()
        if leaf.numel() == 0:
            return torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype, device=device)
        span = 1 + sum((size - 1) * stride for size, stride in zip(leaf.size(), leaf.stride(), strict=True))
        memory = leaf.as_strided((span,), (1,)).clone().to(device)
        return memory.as_strided(leaf.size(), leaf.stride())

    return tree_map(copy, value)


class Kinds:
    """A few calls of each kind: types, dimensions, empty or not, strided or not."""

    def __init__(self) -> None:
        self._met: Counter[Any] = Counter()

    def admits(self, name: str, args: Any, kwargs: Any) -> bool:
        """Count a call, and say whether it is one of the first of its kind."""
        kind = (name, *((t.dtype, t.dim(), t.numel() == 0, t.is_contiguous()) for t in tensors_in((args, kwargs))))
        self._met[kind] += 1
        return self._met[kind] <= CALLS_OF_A_KIND


class Recorder(TorchDispatchMode):  # type: ignore[misc]  # torch's types are not read
    """Takes down calls of ATen operators that succeed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._kinds = Kinds()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the call with copies of its arguments, then make it."""
        kwargs = kwargs or {}
        name = func.name().removeprefix("aten::")
        call = None
        if self._is_plain(args, kwargs) and self._kinds.admits(name, args, kwargs):
            call = copied((args, kwargs), "cpu")
        result = func(*args, **kwargs)
        if call is not None:
            self.calls[name].append(call)
        return result

    @staticmethod
    def _is_plain(args: Any, kwargs: Any) -> bool:
        leaves, tensors = tree_flatten((args, kwargs))[0], tensors_in((args, kwargs))
        plain = all(t.layout is torch.strided and not t.is_quantized and type(t) is torch.Tensor for t in tensors)
        return plain and sum(t.numel() for t in tensors) <= LARGEST and all(isinstance(leaf, KEPT) for leaf in leaves)


def collect(part: int, parts: int, names: Sequence[str]) -> None:
    """Write the calls that PyTorch's samples lead to: as they are, strided, in place, with out=, and for gradients."""
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415 - takes seconds

    torch.manual_seed(0)
    torch.set_num_threads(1)
    recorder = Recorder()
    for info in [info for info in op_db if not names or info.name in names][part::parts]:
        for dtype in DTYPES:
            if info.supports_dtype(dtype, "cpu"):
                _collect_one(recorder, info, dtype)
    # Memory formats are beyond the older protocol that torch.save takes by itself.
    torch.save(dict(recorder.calls), f"calls.{part}.pt", pickle_protocol=5)


def collected() -> dict[str, list[tuple[Any, ...]]]:
    """Return the calls of all parts, a few of each kind, and not more than MOST of an operator."""
    kinds = Kinds()
    calls: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for file in sorted(Path().glob("calls.*.pt")):
        for name, made in torch.load(file, weights_only=False).items():
            calls[name] += [call for call in made if kinds.admits(name, *call)]
    return {name: made[:: -(-len(made) // MOST)] for name, made in calls.items()}


def _collect_one(recorder: Recorder, info: Any, dtype: torch.dtype) -> None:
    grad = bool(dtype is torch.float32 and info.supports_autograd)
    for sample in islice(info.sample_inputs("cpu", dtype, requires_grad=grad), SAMPLES):
        for strided in (False, True):
            for way in (_forward, _inplace, _out):
                # The databases hold samples that some forms refuse, and sparse ones; what is called before counts.
                with suppress(Exception):
                    one = sample.noncontiguous() if strided else sample
                    with recorder:
                        way(info, one, grad)


def _forward(info: Any, sample: Any, grad: bool) -> None:
    results = tensors_in(info(sample.input, *sample.args, **sample.kwargs))
    wanted = [result for result in results if grad and result.requires_grad]
    if wanted:
        torch.autograd.backward(wanted, [torch.ones_like(result) for result in wanted])


def _inplace(info: Any, sample: Any, _: bool) -> None:
    if info.inplace_variant is not None:
        with torch.no_grad():
            info.inplace_variant(sample.input.clone(), *sample.args, **sample.kwargs)


def _out(info: Any, sample: Any, _: bool) -> None:
    if info.supports_out:
        with torch.no_grad():
            result = info(sample.input, *sample.args, **sample.kwargs)
            out = tree_map(torch.empty_like, result)
            info(sample.input, *sample.args, **sample.kwargs, out=out)
