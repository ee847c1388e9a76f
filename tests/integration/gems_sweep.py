"""FlagGems' operators one by one: what a route gives must be what the operator itself gives for the vendor's tensors.

    python gems_sweep.py names                    the ATen operators that the package registers, as JSON
    python gems_sweep.py collect N OF [NAME...]   calls of ATen operators on the CPU, as PyTorch's database of operators
                                                  makes them (or its operators of these names): part N of OF parts, into
                                                  calls.N.pt in the current folder
    python gems_sweep.py replay OPERATOR...       makes the collected calls on flagos: a line of JSON before each
                                                  operator, one with its result after it

`replay` wants its operators routed; test_flaggems.py does that, and starts a new process after an operator that ends
one. GEMS_SWEEP_END is the time (of the epoch) after which no further operator is begun.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

# The plugin first: what it loads is what torch then runs on.
from torch_fl.flagos import routing  # isort: skip
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SAMPLES = 8
CALLS_OF_A_KIND = 3
MOST = 24
LARGEST = 200_000
DTYPES = (torch.float32, torch.int64, torch.bool)
# Matrix products in TF32, and sums in another order, of numbers around 1.
CLOSE = {"rtol": 2e-2, "atol": 2e-2}
# The same kernel on the same numbers; those that add atomically add in any order.
SAME = {"rtol": 1e-4, "atol": 1e-4}
CONTEXT_LOST = 9
# Headings of the report: unlike the CPU, an error, unlike FlagGems itself, and unlike the next call of FlagGems itself.
FAULTS = ("wrong", "raises", "differs", "unsteady")
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


def registered() -> dict[str, Any]:
    """Return FlagGems' operators by the ATen names under which it registers them."""
    import flag_gems  # noqa: PLC0415 - not installed everywhere

    return {entry[0]: entry[1] for entry in reversed(flag_gems._FULL_CONFIG)}


def attempt(function: Any, args: Any, kwargs: Any) -> tuple[Any, BaseException | None]:
    """Call a function with the same random numbers as any other; return its result, or what it raised."""
    torch.flagos.manual_seed(11)
    torch.manual_seed(11)
    try:
        result = function(*args, **kwargs)
        torch.flagos.synchronize()
    except Exception as err:  # noqa: BLE001 - compared with what the other one raises
        return None, err
    return result, None


def difference(got: Any, expected: Any, tolerance: dict[str, float]) -> str:
    """Return how two nested values differ, in one line; "" if they do not. Devices among them are no difference."""
    left, right = tensors_in(got), tensors_in(expected)
    if len(left) != len(right):
        return f"{len(left)} tensors instead of {len(right)}"
    for one, other in zip(left, right, strict=True):
        if one.numel() or other.numel():
            try:
                torch.testing.assert_close(one.cpu(), other.cpu(), equal_nan=True, **tolerance)
            except AssertionError as err:
                return " ".join(str(err).split())[:200]
        elif one.shape != other.shape or one.dtype != other.dtype:
            return f"{tuple(one.shape)} of {one.dtype} instead of {tuple(other.shape)} of {other.dtype}"
    others = (torch.Tensor, torch.device)
    plain = [[leaf for leaf in tree_flatten(side)[0] if not isinstance(leaf, others)] for side in (got, expected)]
    return "" if plain[0] == plain[1] else f"{plain[0]} instead of {plain[1]}"


class Outcome(NamedTuple):
    """What became of a call: its result or error, and its arguments, which it may have written to."""

    result: Any
    error: BaseException | None
    arguments: Any

    def wrote_elsewhere(self) -> bool:
        """Whether a result is no argument, which an operator that writes must return."""
        mine = {id(tensor) for tensor in tensors_in(self.arguments)}
        return any(id(tensor) not in mine for tensor in tensors_in(self.result))


def called(function: Any, call: Any, device: str) -> Outcome:
    """Make a call with copies of its arguments on a device; "cuda" are the vendor's own tensors, made from flagos'."""
    arguments = copied(call, "cpu" if device == "cpu" else "flagos")
    if device == "cuda":
        arguments = tree_map(to_vendors, arguments)
    return Outcome(*attempt(function, *arguments), arguments)


def to_vendors(leaf: Any) -> Any:
    """Return a tensor or device of flagos as the vendor's, anything else as it is."""
    if isinstance(leaf, torch.Tensor):
        return torch.flagos.to_vendor(leaf)
    return torch.device("cuda", 0) if isinstance(leaf, torch.device) else leaf


def compare_errors(routed: Outcome, itself: Outcome) -> tuple[str, str]:
    """Return under which heading a call goes that failed by its route, or by itself, and what is said of it."""
    # The route refuses what did not write to its operand; by itself that goes unnoticed.
    unnoticed = itself.error is None and "must write to" in str(routed.error) and itself.wrote_elsewhere()
    if unnoticed or type(routed.error) is type(itself.error):
        return "raises", f"{routed.error!r:.200}"
    return "differs", f"{routed.error!r:.200} not {itself.error!r:.200}"


def replay_one(name: str, function: Any, calls: Sequence[Any]) -> dict[str, Any]:
    """Make an operator's calls by its route, by FlagGems itself (twice) and on the CPU, and compare."""
    packet, _, overload = name.partition(".")
    func = getattr(getattr(torch.ops.aten, packet), overload or "default")
    found: dict[str, Any] = {"operator": name, "calls": len(calls), "right": 0, **{key: [] for key in FAULTS}}
    for call in calls:
        routed, itself = called(func, call, "flagos"), called(function, call, "cuda")
        if routed.error is not None or itself.error is not None:
            heading, said = compare_errors(routed, itself)
            found[heading].append(said)
            if "CUDA error" in f"{routed.error}{itself.error}":
                print(json.dumps(found), flush=True)
                raise SystemExit(CONTEXT_LOST)
            continue
        if said := difference(routed, itself, SAME):
            # A kernel that reads memory which nobody wrote to gives two results by itself as well.
            again = called(function, call, "cuda")
            steady = again.error is None and not difference(again, itself, SAME)
            found["differs" if steady else "unsteady"].append(said)
        expected = called(func, call, "cpu")
        told_nothing = expected.error is not None or torch.Tag.nondeterministic_seeded in func.tags
        if not told_nothing and (said := difference(routed, expected, CLOSE)):
            found["wrong"].append(said)
        else:
            found["right"] += 1
    return found


def replay(operators: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield, for each operator, a note that it begins and its result."""
    calls, functions = collected(), registered()
    end = float(os.environ.get("GEMS_SWEEP_END", "inf"))
    unrouted = set(operators) - set(routing.routes())
    if unrouted:
        raise SystemExit(f"gems_sweep: not routed: {', '.join(sorted(unrouted))}")
    for name in operators:
        yield {"begins": name}
        yield replay_one(name, functions[name], calls.get(name, ()) if time.time() < end else ())


def main(command: str, *arguments: str) -> None:
    """Run one of the commands."""
    if command == "names":
        print(json.dumps({"names": list(registered())}))
    elif command == "collect":
        collect(int(arguments[0]), int(arguments[1]), arguments[2:])
    else:
        for line in replay(arguments):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
