"""One operator call, and what came of it, for comparison between devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.stress.geometry import Operand

MODES = ("functional", "in-place", "out")
OUTS = ("right", "empty", "wrong shape", "operand", "overlapping", "expanded", "detached empty")
UNCHECKED = ("operand", "overlapping")

UNARY = ("neg", "abs", "exp", "sqrt", "sigmoid", "tanh", "relu", "floor", "logical_not", "square", "sgn", "sin")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "lt", "ge", "logical_and", "atan2", "pow", "fmod")
# Of one tensor, with what else they are given.
REDUCING: dict[str, Callable[..., Any]] = {
    "sum": torch.sum,
    "sum dim": lambda x, **out: torch.sum(x, -1, keepdim=True, **out),
    "mean": torch.mean,
    "amax": lambda x, **out: torch.amax(x, -1, **out),
    "argmax": lambda x, **out: torch.argmax(x, -1, **out),
    "max": lambda x: torch.max(x, -1),
    "sort": lambda x: torch.sort(x, -1),
    "cumsum": lambda x, **out: torch.cumsum(x, -1, **out),
    "softmax": lambda x: torch.softmax(x, -1),
    "norm": torch.linalg.vector_norm,
    "any": torch.any,
    "nonzero": torch.nonzero,
    "tril": torch.tril,
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(-1),
    "select": lambda x: x.select(0, 0),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "split": lambda x: x.split(1),
    "diagonal": lambda x: x.diagonal(),
    "clone": torch.clone,
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(torch.float64),
    "index": lambda x: x[torch.arange(x.shape[0], device=x.device) - 1],
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "fill_": lambda x: x.fill_(2),
    "zero_": lambda x: x.zero_(),
    "resize_": lambda x: x.resize_(3, 2).zero_(),
}
COMBINING: dict[str, Callable[..., Any]] = {
    "mm": torch.mm,
    "bmm": torch.bmm,
    "matmul": torch.matmul,
    "cat": lambda x, y, **out: torch.cat((x, y), **out),
    "stack": lambda x, y, **out: torch.stack((x, y), **out),
    "where": lambda x, y, **out: torch.where(x > 0, x, y, **out),
    "addmm": lambda x, y, **out: torch.addmm(x, x, y, **out),
    "copy_": lambda x, y: x.copy_(y),
    "set_": lambda x, y: x.set_(y),
    "foreach": lambda x, y: torch._foreach_add([x, y], [y, x]),
    "foreach_": lambda x, y: torch._foreach_mul_([x, y], 2),
    "index_add_": lambda x, y: x.index_add_(0, torch.zeros(y.shape[0], dtype=torch.int64, device=x.device), y),
    "masked": lambda x, y: x.masked_fill(y > 0, 1),
}
NAMES = (*UNARY, *BINARY, *REDUCING, *COMBINING)


@dataclass(frozen=True, kw_only=True)
class Call:
    """An operator, its operands, and where its result goes."""

    name: str
    operands: tuple[Operand, ...]
    mode: str
    out: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a call left, as values on the CPU: first its results, then its operands; or the class of what it raised.

    `geometry` has type, strides and offset of each; `storages` the position of the first tensor on the same storage.
    """

    raised: str
    text: str
    values: tuple[torch.Tensor, ...]
    geometry: tuple[tuple[object, ...], ...]
    storages: tuple[int, ...]


def arity(name: str) -> int:
    """Return the number of tensors that the operator takes."""
    return 2 if name in BINARY or name in COMBINING else 1


def _function(call: Call) -> Callable[..., Any]:
    known = {**REDUCING, **COMBINING}
    if call.name in known:
        return known[call.name]
    if call.mode == "in-place":
        name = f"{call.name}_"
        return lambda x, *rest: getattr(x, name)(*rest)
    function: Callable[..., Any] = getattr(torch, call.name)
    return function


def _target(call: Call, operands: list[torch.Tensor], device: str) -> torch.Tensor:
    first = operands[0]
    if call.out == "operand":
        return first
    if call.out == "overlapping":
        return first[1:] if first.dim() and first.shape[0] > 1 else first
    if call.out == "expanded":
        return torch.zeros(1, dtype=first.dtype, device=device).expand(first.shape)
    shapes = {"right": tuple(first.shape), "wrong shape": (2, 5)}
    made = torch.zeros(shapes.get(call.out, (0,)), dtype=first.dtype, device=device)
    return made.detach() if call.out == "detached empty" else made


def _flat(result: Any) -> tuple[torch.Tensor, ...]:
    if isinstance(result, torch.Tensor):
        return (result,)
    return tuple(result) if isinstance(result, (tuple, list)) else ()


def run(call: Call, device: str) -> Outcome:
    """Make the operands on a device, run the call, and look at everything afterwards."""
    operands = [operand.make(device) for operand in call.operands]
    raised, text = "", ""
    results: tuple[torch.Tensor, ...] = ()
    try:
        if call.mode == "out":
            results = _flat(_function(call)(*operands, out=_target(call, operands, device)))
        else:
            results = _flat(_function(call)(*operands))
    except (RuntimeError, TypeError, IndexError, ValueError, AttributeError) as error:
        raised, text = type(error).__name__, str(error)
    everything = (*results, *operands)
    places = [tensor.untyped_storage()._cdata for tensor in everything]
    return Outcome(
        raised=raised,
        text=text,
        values=tuple(tensor.detach().resolve_conj().cpu().contiguous() for tensor in everything),
        geometry=tuple((tensor.dtype, tensor.stride(), tensor.storage_offset()) for tensor in everything),
        storages=tuple(places.index(place) for place in places),
    )
