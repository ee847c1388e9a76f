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
from typing import TYPE_CHECKING, Any, NamedTuple

# The plugin first: what it loads is what torch then runs on.
from torch_fl.flagos import routing  # isort: skip
import torch
from gems_calls import collect, collected, copied, tensors_in
from torch.utils._pytree import tree_flatten, tree_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Matrix products in TF32, and sums in another order, of numbers around 1.
CLOSE = {"rtol": 2e-2, "atol": 2e-2}
# The same kernel on the same numbers; those that add atomically add in any order.
SAME = {"rtol": 1e-4, "atol": 1e-4}
REPEATS = 3
CONTEXT_LOST = 9
# Headings of the report. FlagGems itself is unlike the CPU, raises (or returns a new tensor instead of writing to its
# operand), or gives something else each time; and what a route alone can be blamed for: "differs".
FAULTS = ("wrong", "raises", "differs", "unsteady")


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
        """Whether a result lies in no argument's memory, as that of an operator that writes must."""
        mine = {tensor.untyped_storage().data_ptr() for tensor in tensors_in(self.arguments)}
        return any(tensor.untyped_storage().data_ptr() not in mine for tensor in tensors_in(self.result))


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


def leave_if_lost(found: dict[str, Any], *outcomes: Outcome) -> None:
    """End this process, after what was found so far, if a call damaged the device's context."""
    if any("CUDA error" in str(outcome.error) for outcome in outcomes):
        print(json.dumps(found), flush=True)
        raise SystemExit(CONTEXT_LOST)


def is_steady(function: Any, call: Any, first: Outcome, found: dict[str, Any]) -> bool:
    """Whether FlagGems itself gives the same again, whatever memory held before: kernels may read what nobody wrote."""
    for value in range(1, REPEATS + 1):
        stale = [torch.full_like(tensor, value) for tensor in tensors_in(first)]
        del stale
        again = called(function, call, "cuda")
        leave_if_lost(found, again)
        if again.error is not None or difference(again, first, SAME):
            return False
    return True


def replay_one(name: str, function: Any, calls: Sequence[Any]) -> dict[str, Any]:
    """Make an operator's calls by its route, by FlagGems itself and on the CPU, and compare."""
    packet, _, overload = name.partition(".")
    func = getattr(getattr(torch.ops.aten, packet), overload or "default")
    found: dict[str, Any] = {"operator": name, "calls": len(calls), "right": 0, **{key: [] for key in FAULTS}}
    for call in calls:
        routed, itself = called(func, call, "flagos"), called(function, call, "cuda")
        if routed.error is not None or itself.error is not None:
            heading, said = compare_errors(routed, itself)
            found[heading].append(said)
            leave_if_lost(found, routed, itself)
            continue
        expected = called(func, call, "cpu")
        told_nothing = expected.error is not None or torch.Tag.nondeterministic_seeded in func.tags
        unlike = difference(routed, itself, SAME)
        if unlike and is_steady(function, call, itself, found):
            found["differs"].append(unlike)
        elif not told_nothing and (said := difference(itself, expected, CLOSE)):
            found["wrong"].append(said)
        elif unlike:
            found["unsteady"].append(unlike)
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
