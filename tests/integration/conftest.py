"""Fixtures of the integration suite, which runs against an installed wheel on any backend, real or forged.

The folder is self-contained: it is copied alone to some other place and started there, with nothing of the repository
on the path:

    python -m pytest -p reporting --report-json REPORT.json -n 4

Tests marked `device` need a device. A machine that has none is said so with `--no-device`, which deselects them and
states how many; without that option a machine without devices is an error, so that a broken driver cannot look green.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

# The plugin first: what it loads is what torch then runs on.
import torch_fl  # isort: skip
import pytest
import torch
from sweeps.expected import mark_expected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SUBPROCESS_SECONDS = 300
# The loosest matrix product of all backends; test_accuracy.py holds the same bound.
LOOSEST_PRODUCT = 1.1e-02
MAX_THREADS = 4
EXACT = {"rtol": 0.0, "atol": 0.0}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-device",
        action="store_true",
        help="this machine has no device: run only the tests that need none",
    )
    parser.addoption(
        "--suite",
        choices=("core", "full"),
        default="full",
        help="core: of the sweeps over PyTorch's databases one operator of each family, and no tests marked "
        "plugin_alone; full: all (default)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "device: needs at least one flagos device")
    config.addinivalue_line("markers", "plugin_alone: says nothing about a backend or its core")
    if not config.getoption("--no-device") and torch.flagos.device_count() == 0:
        raise pytest.UsageError(
            "integration: torch.flagos.device_count() is 0, expected at least 1; check the driver, "
            "or pass --no-device to run only the tests that need no device"
        )


def pytest_report_header(config: pytest.Config) -> str:
    info = torch_fl.bundle()
    tests = (
        "those that need no device (--no-device)" if config.getoption("--no-device") else config.getoption("--suite")
    )
    return f"flagos: {info.backend}, core {info.core}, {torch.flagos.device_count()} devices; tests: {tests}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_expected(items)
    chosen = {"device": config.getoption("--no-device"), "plugin_alone": config.getoption("--suite") == "core"}
    unwanted = {marker for marker, left_out in chosen.items() if left_out}
    left = {item: not unwanted.isdisjoint(mark.name for mark in item.iter_markers()) for item in items}
    if any(left.values()):
        items[:] = [item for item in items if not left[item]]
        config.hook.pytest_deselected(items=[item for item, out in left.items() if out])


@dataclass(frozen=True)
class Worker:
    """This process's place among the xdist workers: `index` of `count`, 0 of 1 without xdist."""

    index: int
    count: int

    @classmethod
    def of(cls, config: pytest.Config) -> Worker:
        info = getattr(config, "workerinput", None)
        if info is None:
            return cls(index=0, count=1)
        # A replaced worker gets a number above the count, so the devices are dealt out again from the start.
        return cls(index=int(info["workerid"].removeprefix("gw")), count=int(info["workercount"]))


@pytest.fixture(scope="session")
def home_index(pytestconfig: pytest.Config) -> int:
    """The device that this worker uses: workers are spread over all devices."""
    count: int = torch.flagos.device_count()
    return Worker.of(pytestconfig).index % count


@pytest.fixture(scope="session")
def device(home_index: int) -> torch.device:
    return torch.device("flagos", home_index)


@pytest.fixture(scope="session")
def other_device(home_index: int) -> torch.device:
    """A second device; tests that use it are about several devices."""
    count = torch.flagos.device_count()
    if count < 2:
        pytest.skip(f"needs two devices, this machine has {count}")
    return torch.device("flagos", (home_index + 1) % count)


@pytest.fixture(scope="session", autouse=True)
def _cap_threads(pytestconfig: pytest.Config) -> None:
    """Without a cap each worker starts a thread per core, and more workers make the run slower."""
    share = (os.cpu_count() or 1) // Worker.of(pytestconfig).count
    torch.set_num_threads(min(MAX_THREADS, max(1, share)))


@pytest.fixture(autouse=True)
def _fixed_start(request: pytest.FixtureRequest) -> None:
    """Each test begins on its worker's device with the same CPU random numbers, whatever ran before it."""
    torch.default_generator.manual_seed(20260101)
    if request.node.get_closest_marker("device"):
        torch.flagos.set_device(request.getfixturevalue("home_index"))


def _moved(value: Any, device: torch.device | str) -> Any:
    """Copy tensors of a nested value to `device`, with strides kept; other values stay as they are."""
    if isinstance(value, torch.Tensor):
        copy = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=device)
        copy.copy_(value.detach())
        return copy.requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(item, device) for item in value)
    return value


def _assert_same(got: Any, expected: Any, *, tolerance: dict[str, float], where: str = "result") -> None:
    """Type, dtype and shape before values: a wrong dtype explains a wrong value, not the reverse."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(got, torch.Tensor), f"{where}: {type(got).__name__}, expected a tensor"
        assert got.device.type == "flagos", f"{where} is on {got.device}, expected flagos"
        assert got.dtype == expected.dtype, f"{where}: dtype {got.dtype}, expected {expected.dtype}"
        assert got.shape == expected.shape, f"{where}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
        torch.testing.assert_close(got.cpu(), expected, equal_nan=True, **tolerance)
    elif isinstance(expected, (list, tuple)):
        assert len(got) == len(expected), f"{where}: {len(got)} parts, expected {len(expected)}"
        for index, (one, other) in enumerate(zip(got, expected, strict=True)):
            _assert_same(one, other, tolerance=tolerance, where=f"{where}[{index}]")
    else:
        assert got == expected, f"{where}: {got!r}, expected {expected!r}"


@pytest.fixture
def assert_same() -> Callable[..., None]:
    """`assert_same(got, expected, exact=False)`: got lives on flagos, expected on the CPU, and they are equal."""

    def check(got: Any, expected: Any, *, exact: bool = False) -> None:
        _assert_same(got, expected, tolerance=EXACT if exact else {})

    return check


@pytest.fixture
def to_device(device: torch.device) -> Callable[[Any], Any]:
    """`to_device(value)`: a copy on flagos of every tensor in a nested value, strides kept."""

    def move(value: Any) -> Any:
        return _moved(value, device)

    return move


@pytest.fixture
def agree(device: torch.device) -> Callable[..., Any]:
    """`agree(function, *inputs, exact=False)`: the function gives on flagos what it gives on the CPU.

    Each side gets its own copies of the inputs, and these are compared as well afterwards, so that in-place operators
    are covered. `tolerance` replaces the default of torch.testing. Returns the result on flagos.
    """

    def check(
        function: Callable[..., Any], *inputs: Any, exact: bool = False, tolerance: dict[str, float] | None = None
    ) -> Any:
        accepted = EXACT if exact else tolerance or {}
        on_cpu, on_device = _moved(inputs, "cpu"), _moved(inputs, device)
        expected, got = function(*on_cpu), function(*on_device)
        _assert_same(got, expected, tolerance=accepted)
        _assert_same(on_device, on_cpu, tolerance=accepted, where="inputs")
        return got

    return check


@pytest.fixture
def both_raise(device: torch.device) -> Callable[..., None]:
    """`both_raise(function, *inputs)`: the CPU raises, flagos raises an error of that class, and no input changes."""

    def check(function: Callable[..., Any], *inputs: Any) -> None:
        with pytest.raises(Exception) as on_cpu:  # noqa: PT011 - whatever the CPU raises is the expectation
            function(*_moved(inputs, "cpu"))
        on_device = _moved(inputs, device)
        kind = RuntimeError if isinstance(on_cpu.value, RuntimeError) else on_cpu.type
        with pytest.raises(kind):
            function(*on_device)
        _assert_same(on_device, inputs, tolerance=EXACT, where="inputs")

    return check


@pytest.fixture
def integers() -> Callable[..., torch.Tensor]:
    """`integers(*shape, dtype=float32)`: small whole numbers on the CPU.

    Their products and sums are exact in every precision, TF32 included, so that matrix products can be compared exactly
    on every backend.
    """

    def make(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randint(-3, 4, shape).to(dtype)

    return make


@pytest.fixture(scope="session")
def product_tolerance(device: torch.device) -> dict[str, float]:
    """The tolerance for layers with matrix products or convolutions of numbers that are not whole.

    Some backends use TF32 there. How far theirs is off is measured once, and never accepted beyond the loosest known.
    """
    generator = torch.Generator().manual_seed(1)
    image, kernel = torch.randn(4, 8, 16, 16, generator=generator), torch.randn(8, 8, 3, 3, generator=generator) / 8
    left, right = torch.randn(128, 128, generator=generator), torch.randn(128, 128, generator=generator) / 11
    pairs = [
        (left.to(device) @ right.to(device), left @ right),
        (torch.conv2d(image.to(device), kernel.to(device)), torch.conv2d(image, kernel)),
    ]
    off = min(LOOSEST_PRODUCT, max(float((got.cpu() - expected).abs().max()) for got, expected in pairs))
    return {"rtol": max(1e-4, 4 * off), "atol": max(1e-5, 4 * off)}


@pytest.fixture(scope="session")
def installed_wheel() -> None:
    """The test is of a wheel as installed: its bundle, its hook, its scripts. A build tree on the path has none."""
    try:
        importlib.metadata.version("torch_fl")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("a plain build on PYTHONPATH: no distribution torch_fl is installed")


@pytest.fixture
def full_precision() -> Iterator[None]:
    """TF32, which some backends use in convolutions and recurrent networks unless told otherwise, is off."""
    # flags() also where the plain settings are locked, which PyTorch's test databases do when they are imported.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`python(program)`: run a program in a new interpreter, in an empty folder, and return what became of it."""

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=SUBPROCESS_SECONDS,
            check=False,
        )

    return run


@pytest.fixture
def run_ok(python: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., str]:
    """`run_ok(program)`: as `python`, and the program must exit 0 with nothing on stderr; returns its stdout."""

    def run(program: str, *arguments: str) -> str:
        done = python(program, *arguments)
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.stderr == "", f"unexpected words on stderr:\n{done.stderr}"
        return done.stdout

    return run
