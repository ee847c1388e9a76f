"""Results that an operator's operands do not determine, in a form that they do.

Where numbers tie, each backend names the position that its own algorithm meets first; what lies there is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.testing._internal.opinfo.core import SampleInput

# In half precision, and without training, each backend keeps statistics for its own backward pass as it likes.
STATISTICS = frozenset(
    ["_batch_norm_with_update", "_native_batch_norm_legit", "native_batch_norm", "native_layer_norm"]
)
# Without dropout, what follows the output and its logarithms, a generator's state, is left as it lies in memory.
ATTENTION = frozenset(f"torch.ops.aten._{kind}_attention_forward" for kind in ("flash", "efficient"))


def _dimension(sample: SampleInput, position: int) -> int:
    """The dimension that an operator works along; by default the last."""
    given = sample.args[position] if len(sample.args) > position else sample.kwargs.get("dim", -1)
    return -1 if given is None else int(given)


def _kept(indices: torch.Tensor, sample: SampleInput, dim: int) -> torch.Tensor:
    """Without keepdim the dimension is gone from the result."""
    return indices if indices.dim() == sample.input.dim() else indices.unsqueeze(dim)


def _there(indices: torch.Tensor, sample: SampleInput, dim: int) -> torch.Tensor:
    if sample.input.dim() == 0:
        return sample.input.expand(indices.shape)
    return torch.take_along_dim(sample.input, _kept(indices, sample, dim), dim)


def _with_values(position: int) -> Callable[[Any, SampleInput], Any]:
    """For (values, indices): the values, and what lies at the indices."""

    def form(result: Any, sample: SampleInput) -> Any:
        if isinstance(result, torch.Tensor):
            return result
        return result[0], _there(result[1], sample, _dimension(sample, position))

    return form


def _indices_alone(result: Any, sample: SampleInput) -> Any:
    return _there(result, sample, _dimension(sample, 0))


def _mode(result: Any, sample: SampleInput) -> Any:
    """How often the value occurs, which is the most that any does, and whether it lies at the index."""
    dim = _dimension(sample, 0)
    value, there = _kept(result[0], sample, dim), _there(result[1], sample, dim)
    return (sample.input == value).sum(dim), there.reshape(result[0].shape) == result[0]


def _product(result: Any, _: SampleInput) -> Any:
    """For (LU, pivots, ...): the matrix that they come from; pivots are chosen by other norms of complex numbers."""
    lower_upper = torch.lu_unpack(result[0], result[1])
    return lower_upper[0] @ lower_upper[1] @ lower_upper[2], *result[2:]


FORMS: dict[str, Callable[[Any, SampleInput], Any]] = {
    "argsort": _indices_alone,
    "sort": _with_values(0),
    "topk": _with_values(1),
    "kthvalue": _with_values(1),
    "median": _with_values(0),
    "nanmedian": _with_values(0),
    "mode": _mode,
    "lu": _product,
    "linalg.lu_factor": _product,
    "linalg.lu_factor_ex": _product,
}


def determined(name: str, sample: SampleInput, result: Any, *, software: bool) -> Any:
    """Return an operator's result in a form that can be compared; the database's own, where it has one, is applied."""
    result = sample.output_process_fn_grad(result)
    if name in FORMS:
        return FORMS[name](result, sample)
    # The software device runs the CPU's kernels, which keep the same.
    return result[0] if name in STATISTICS and not software else result
