"""Operators that the vendor has no kernel for: once a notice, or an error, as FLAGOS_FALLBACK says."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.device, pytest.mark.plugin_alone]

# An operator of the test's own, with a kernel for the CPU only.
PROGRAM = """
import torch_fl, torch
library = torch.library.Library("flagos_test", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x + x, "CPU")
x = torch.ones(3, device="flagos")
for _ in range(2):
    y = torch.ops.flagos_test.twice(x)
print(y.device.type, y.tolist())
"""


@pytest.fixture
def run_with(monkeypatch, python):
    """`run_with(value)`: run the program with FLAGOS_FALLBACK set to it, or unset for None."""

    def run(value):
        monkeypatch.delenv("FLAGOS_FALLBACK", raising=False)
        if value is not None:
            monkeypatch.setenv("FLAGOS_FALLBACK", value)
        return python(PROGRAM)

    return run


@pytest.mark.parametrize("value", [None, "", "cpu"], ids=["unset", "empty", "cpu"])
def test_operator_without_kernel_must_run_on_the_cpu_and_say_so_once(run_with, value):
    done = run_with(value)
    assert done.stdout == "flagos [2.0, 2.0, 2.0]\n", done.stderr
    assert done.stderr.count("flagos: flagos_test::twice has no kernel for this device and runs on the CPU") == 1


def test_operator_without_kernel_must_be_refused_when_asked_for(run_with):
    done = run_with("error")
    assert done.returncode == 1
    assert "NotImplementedError: flagos: flagos_test::twice has no kernel for this device, and" in done.stderr
    assert "FLAGOS_FALLBACK=error forbids the CPU" in done.stderr


def test_unknown_choice_must_be_refused_with_the_choices(run_with):
    done = run_with("sometimes")
    assert done.returncode == 1
    assert "ValueError: flagos: FLAGOS_FALLBACK is 'sometimes', expected cpu" in done.stderr
