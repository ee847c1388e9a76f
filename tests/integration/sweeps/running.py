"""One call on both sides: the CPU says what is right, also when that is an error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from sweeps.cases import HOST_ARGUMENTS
from sweeps.compare import HALVES, assert_agrees, is_random, tolerance_of
from sweeps.samples import Mover, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.testing._internal.opinfo.core import SampleInput

    from sweeps.cases import Case

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a call returned, or the exception it raised."""

    value: Any = None
    error: Exception | None = None


def attempt(call: Callable[[], Any]) -> Outcome:
    """Run a call; any exception is an outcome."""
    try:
        return Outcome(value=call())
    except Exception as err:  # noqa: BLE001 - what it raises is what is compared
        return Outcome(error=err)


def call(function: Callable[..., Any], sample: SampleInput) -> Any:
    """Call an operator with a sample, and make its result comparable where it is not unique (singular vectors)."""
    return sample.output_process_fn_grad(function(sample.input, *sample.args, **sample.kwargs))


def kind_of(error: Exception) -> type[BaseException]:
    """The class by which callers catch an error: PyTorch uses subclasses of RuntimeError for its own kernels."""
    return RuntimeError if isinstance(error, RuntimeError) else type(error)


def assert_same_error(got: Outcome, expected: Exception, where: str) -> None:
    """The device must refuse what the CPU refuses, with the same class of error."""
    assert got.error is not None, f"{where}: the CPU raised {expected!r}, flagos returned {got.value!r}"
    if not isinstance(got.error, kind_of(expected)):
        raise got.error


def _in_single_precision(dtype: torch.dtype, act: Callable[[SampleInput], Any], sample: SampleInput) -> Outcome:
    """The CPU lacks some kernels for half precision: its expectation is then single precision, rounded."""

    def rounded(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(dtype) if value.dtype is torch.float32 else value
        return type(value)(map(rounded, value)) if type(value) in (list, tuple) else value

    return attempt(lambda: rounded(act(Mover(CPU, dtype=torch.float32).sample(sample))))


def expect(dtype: torch.dtype, act: Callable[[SampleInput], Any], sample: SampleInput) -> Outcome:
    """Return what the CPU makes of its own copy of a sample."""
    outcome = attempt(lambda: act(Mover(CPU).sample(sample)))
    if isinstance(outcome.error, RuntimeError) and dtype in HALVES and "not implemented for" in str(outcome.error):
        return _in_single_precision(dtype, act, sample)
    return outcome


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Compares a device with the CPU."""

    device: torch.device
    software: bool

    def moved(self, case: Case, sample: SampleInput) -> SampleInput:
        """Return a copy of a sample on the device, but for arguments that belong on the host."""
        moved = Mover(self.device).sample(sample)
        if case.op.name in HOST_ARGUMENTS:
            moved.args, moved.kwargs = sample.args, sample.kwargs
        return moved

    def _act(self, act: Callable[[SampleInput], Any], sample: SampleInput) -> Any:
        """A factory that is told of no device, neither by an operand nor by name, makes its tensor on the default."""
        if tensors_of(sample) or "device" in sample.kwargs:
            return act(sample)
        with self.device:
            return act(sample)

    def compare(
        self, case: Case, act: Callable[[SampleInput], Any], samples: list[SampleInput], *, refusable: bool = False
    ) -> None:
        """Act on each sample on both sides. One at least must give a result, unless the form is `refusable`."""
        tolerance, compared = tolerance_of(case, software=self.software), 0
        for index, sample in enumerate(samples):
            where = f"sample {index} ({sample.summary()})"
            expected = expect(case.dtype, act, sample)
            mine = self.moved(case, sample)
            got = attempt(partial(self._act, act, mine))
            if expected.error is not None:
                assert_same_error(got, expected.error, where)
                continue
            if got.error is not None:
                raise got.error
            limits = None if is_random(case, sample) else tolerance
            assert_agrees(got.value, expected.value, tolerance=limits, where=where)
            compared += 1
        # For lists of tensors, the database names types that only some lists or arguments go with.
        refusable = refusable or case.op.name.startswith("_foreach_")
        assert compared or refusable or not samples, f"{case.id}: the CPU refused all {len(samples)} samples"
