"""One call on both sides: the CPU says what is right, also when that is an error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch

from sweeps.cases import HOST_ARGUMENTS
from sweeps.compare import HALVES, assert_agrees, is_random, tolerance_of
from sweeps.samples import Mover, VendorMover, tensors_in, tensors_of
from sweeps.undetermined import determined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.testing._internal.opinfo.core import SampleInput

    from sweeps.cases import Case

CPU = torch.device("cpu")
# How the CPU says that it has no kernel for half precision.
NO_HALF = ("not implemented for", "Unsupported dtype Half", "doesn't support tensors of type: Half")


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
    """Call an operator, or a form of it, with a sample."""
    return function(sample.input, *sample.args, **sample.kwargs)


def kind_of(error: Exception) -> type[BaseException]:
    """The class by which callers catch an error: PyTorch uses subclasses of RuntimeError for its own kernels."""
    return RuntimeError if isinstance(error, RuntimeError) else type(error)


def assert_same_error(got: Outcome, expected: Exception, where: str) -> None:
    """The device must refuse what the CPU refuses, with the same class of error."""
    assert got.error is not None, f"{where}: the CPU raised {expected!r}, flagos returned {got.value!r}"
    if not isinstance(got.error, kind_of(expected)):
        raise got.error


def _rounded(act: Callable[[SampleInput], Any], sample: SampleInput, fine: torch.dtype, dtype: torch.dtype) -> Outcome:
    """What the CPU makes of a sample in a finer type, rounded to the sample's."""
    half_complex = {torch.complex64: torch.complex32} if dtype is torch.float16 else {}
    coarser = {fine: dtype, **half_complex}

    def rounded(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(coarser.get(value.dtype, value.dtype))
        return type(value)(map(rounded, value)) if type(value) in (list, tuple) else value

    return attempt(lambda: rounded(act(Mover(CPU, dtype=fine).sample(sample))))


def expect(dtype: torch.dtype, act: Callable[[SampleInput], Any], sample: SampleInput) -> Outcome:
    """Return what the CPU makes of its own copy of a sample.

    It lacks some kernels for half precision: its expectation is then single precision, rounded.
    """
    outcome = attempt(lambda: act(Mover(CPU).sample(sample)))
    if isinstance(outcome.error, RuntimeError) and dtype in HALVES and any(t in str(outcome.error) for t in NO_HALF):
        return _rounded(act, sample, torch.float32, dtype)
    return outcome


def finer_expectations(dtype: torch.dtype, act: Callable[[SampleInput], Any], sample: SampleInput) -> Iterator[Any]:
    """Yield other right answers in half precision: the CPU's kernels for it round in between, those of devices do not.

    Coordinates of grid_sample that are rounded twice, for example, name another pixel.
    """
    for fine in (torch.float32, torch.float64) if dtype in HALVES else ():
        outcome = _rounded(act, sample, fine, dtype)
        if outcome.error is None:
            yield outcome.value


def says_nothing_of_devices(case: Case, refusal: Exception) -> bool:
    """Whether the CPU refused for a reason of its own: it has no kernel, where CUDA has one, or checks a divisor.

    CUDA's integers divided by zero are whatever the hardware makes of them, and not an error.
    """
    if isinstance(refusal, NotImplementedError) or case.dtype not in case.op.supported_dtypes("cpu"):
        return True
    return "ZeroDivisionError" in str(refusal)


def assert_one_agrees(
    got: Any, right: tuple[Any, Iterator[Any]], *, tolerance: dict[str, float] | None, where: str
) -> None:
    """Compare with the first right answer, and where that differs with the others, which are computed only then."""
    first, others = right
    try:
        assert_agrees(got, first, tolerance=tolerance, where=where)
    except AssertionError:
        for other in others:
            if attempt(partial(assert_agrees, got, other, tolerance=tolerance, where=where)).error is None:
                return
        raise


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Compares a device with the CPU."""

    device: torch.device
    software: bool

    def moved(self, case: Case, sample: SampleInput, *, by: type[Mover] = Mover) -> SampleInput:
        """Return a copy of a sample on the device, or where `by` puts it, but for arguments that belong on the host."""
        moved = by(self.device).sample(sample)
        if case.op.name in HOST_ARGUMENTS:
            moved.args, moved.kwargs = sample.args, sample.kwargs
        return moved

    def result(self, case: Case, sample: SampleInput) -> Any:
        """Call an operator, and make its result comparable where it is not unique (singular vectors, ties)."""
        return determined(case.op.name, sample, call(case.op, sample), software=self.software)

    def is_there(self, value: Any) -> bool:
        """Whether a nested value's tensors are on the device."""
        return any(tensor.device.type == self.device.type for tensor in tensors_in(value))

    def check_vendor_refuses(self, act: Callable[[SampleInput], Any], sample: SampleInput, error: Exception) -> None:
        """Raise `error` again, unless the vendor's own device refuses the sample in the same words.

        For example, CUDA has only some of the solvers. A kernel that is missing is no such refusal: the CPU's takes
        over; nor is anything on a software device, whose kernels are the CPU's.
        """
        if self.software or isinstance(error, NotImplementedError):
            raise error
        vendors = attempt(lambda: act(VendorMover(self.device).sample(sample)))
        if str(vendors.error) != str(error):
            raise error

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
        compared, unserved = 0, None
        for index, sample in enumerate(samples):
            where = f"sample {index} ({sample.summary()})"
            expected = expect(case.dtype, act, sample)
            mine = self.moved(case, sample)
            got = attempt(partial(self._act, act, mine))
            if expected.error is not None:
                own_reason = not self.software and says_nothing_of_devices(case, expected.error)
                unserved = expected.error if own_reason else unserved
                if got.error is not None or not own_reason:
                    assert_same_error(got, expected.error, where)
                continue
            if got.error is not None:
                self.check_vendor_refuses(act, sample, got.error)
                unserved = got.error
                continue
            others = finer_expectations(case.dtype, act, sample) if not self.software else iter(())
            limits = None if is_random(case, sample) else tolerance_of(case, software=self.software)
            assert_one_agrees(got.value, (expected.value, others), tolerance=limits, where=where)
            compared += 1
        if not compared and unserved is not None:
            pytest.skip(f"{case.id}: nothing to compare, one side refuses: {unserved!r}")
        # For lists of tensors, the database names types that only some lists or arguments go with.
        refusable = refusable or case.op.name.startswith("_foreach_")
        assert compared or refusable or not samples, f"{case.id}: the CPU refused all {len(samples)} samples"
