"""The out= and in-place siblings of the operators that a call comes down to.

PyTorch's database calls what has a name in Python. Below, many kernels are registered that no Python function reaches
by its arguments: out= forms of backward operators, of lists of tensors, of helpers. Here they are given what their
functional sibling was given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from operators import registered
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from sweeps.samples import tensors_in

if TYPE_CHECKING:
    from collections.abc import Iterator

# Called in a process of its own by test_kernels.py: on CUDA it has been seen to end the one that calls it.
CALLED_ELSEWHERE = frozenset({"aten::cudnn_batch_norm.out"})


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One call of an operator: its operands as they were, and its result."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


def _copied(value: Any) -> Any:
    return tree_map_only(torch.Tensor, torch.clone, value)


@dataclass
class Watch(TorchDispatchMode):  # type: ignore[misc]  # torch is not followed, so its classes are Any
    """Keeps the first call of each functional operator that runs on flagos while the mode is on."""

    seen: dict[Any, Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator; note the call."""
        kwargs = kwargs or {}
        wanted = func not in self.seen and not func._schema.is_mutable and siblings_of(func)
        before = (_copied(args), _copied(kwargs)) if wanted else None
        result = func(*args, **kwargs)
        if before is not None and all(tensor.device.type == "flagos" for tensor in tensors_in(result)):
            self.seen[func] = Seen(args=before[0], kwargs=before[1], result=_copied(result))
        return result


def _takes_the_same(schema: Any, other: Any) -> bool:
    """Whether two operators have the same arguments, out= aside."""
    mine = [(argument.name, str(argument.type)) for argument in schema.arguments]
    theirs = [(argument.name, str(argument.type)) for argument in other.arguments if not argument.is_out]
    return mine == theirs


def _packets_of(func: Any) -> Iterator[Any]:
    name = func._schema.name.split("::")[1]
    operators = getattr(torch.ops, func.namespace)
    yield getattr(operators, name)
    if hasattr(operators, f"{name}_"):
        yield getattr(operators, f"{name}_")


@cache
def siblings_of(func: Any) -> tuple[Any, ...]:
    """Return the out= and in-place forms of a functional operator that have a kernel of the vendor's."""
    others = (getattr(packet, overload) for packet in _packets_of(func) for overload in packet.overloads())
    forms = (other for other in others if other._schema.is_mutable and other.name() in registered())
    called = (form for form in forms if form.name() not in CALLED_ELSEWHERE)
    return tuple(form for form in called if _takes_the_same(func._schema, form._schema))


def run_sibling(sibling: Any, call: Seen) -> Any:
    """Call a sibling with the operands of a call; return what it wrote, or None where its operand cannot hold that."""
    outs = [argument.name for argument in sibling._schema.arguments if argument.is_out]
    args, kwargs = _copied(call.args), _copied(call.kwargs)
    if not outs:
        fits = [(t.dtype, t.shape) for t in tensors_in(args[0])] == [
            (t.dtype, t.shape) for t in tensors_in(call.result)
        ]
        if not fits:
            return None
        sibling(*args, **kwargs)
        return args[0]
    whole = call.result if len(outs) > 1 else (call.result,)
    given = {name: tree_map_only(torch.Tensor, torch.empty_like, part) for name, part in zip(outs, whole, strict=True)}
    sibling(*args, **kwargs, **given)
    written = tuple(given.values())
    return written if len(outs) > 1 else written[0]
