"""The accuracy table: its bounds hold, and its script says so and fails when they do not."""

from __future__ import annotations

import importlib
import json
import math

import pytest
import torch

# Not a plain import: beside this file there is no package that a type checker could follow.
accuracy = importlib.import_module("accuracy")

# The loosest of all backends: TF32 or another order of accumulation. A backend's own is the script's argument.
LOOSEST_MM = 1.1e-02


@pytest.fixture(scope="module")
def differences(device):
    return accuracy.measure(str(device))


@pytest.mark.device
@pytest.mark.parametrize("name", ["add", "mul", "silu", "mm", "softmax"])
def test_operator_must_be_within_its_bound(differences, name):
    assert differences[name] <= accuracy.bounds(LOOSEST_MM)[name]


@pytest.mark.device
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_basic_arithmetic_must_be_bit_for_bit(agree, name, dtype):
    left, right = torch.randn(300).to(dtype), torch.randn(300).to(dtype)
    agree(getattr(torch, name), left, right, exact=True)


def test_difference_above_its_bound_must_be_named():
    found = accuracy.outside({"add": 0.0, "mul": 1e-9, "mm": math.nan}, {"add": 0.0, "mul": 0.0, "mm": 1.0})
    assert found == [
        "mul differs from the CPU by 1e-09, allowed is 0",
        "mm differs from the CPU by nan, allowed is 1",
    ]


@pytest.mark.device
def test_script_must_print_the_differences_and_exit_0(device, capsys):
    assert accuracy.main(["--mm-tolerance", str(LOOSEST_MM), "--device", str(device)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told.keys() == {"add", "mul", "silu", "mm", "softmax"}
    assert told["add"] == told["mul"] == 0.0


@pytest.mark.device
def test_script_must_exit_1_and_name_the_operator_that_is_outside(device, capsys):
    assert accuracy.main(["--mm-tolerance", "-1", "--device", str(device)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("accuracy: mm differs from the CPU by") for line in lines[1:])
