"""Which stock torch is used, and when a fallback is allowed."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from bundle.backends import CUDA, DCU
from bundle.errors import ToolError, UsageError
from bundle.interpreters import check_compilers
from bundle.stock import DEFAULT_INDEX, StockTorch, install_stock, nearest, requested, resolve
from bundle.ui import Reporter


def test_default_must_be_the_products_stock_torch():
    assert requested({}) == ("2.10.0+cpu", DEFAULT_INDEX)


def test_environment_must_override_version_and_index():
    assert requested({"TORCH_FL_STOCK_TORCH": "2.13.0+cpu", "TORCH_FL_STOCK_INDEX": ""}) == ("2.13.0+cpu", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "newest", "TORCH_FL_STOCK_TORCH='newest' is not a version; expected something like 2.10.0+cpu", id="word"
        ),
        pytest.param(
            "2.9.1+cpu",
            "TORCH_FL_STOCK_TORCH='2.9.1+cpu' is outside the supported range; expected >= 2.10, < 2.14",
            id="old",
        ),
        pytest.param(
            "2.14.0", "TORCH_FL_STOCK_TORCH='2.14.0' is outside the supported range; expected >= 2.10, < 2.14", id="new"
        ),
    ],
)
def test_unusable_version_must_be_refused(text, message):
    with pytest.raises(UsageError) as caught:
        requested({"TORCH_FL_STOCK_TORCH": text})
    assert str(caught.value) == message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        pytest.param(
            {"3.12": ["2.10.0+cpu"], "3.11": ["2.10.0+cpu"]}, ("2.10.0+cpu", "3.12"), id="wanted-python-first"
        ),
        pytest.param(
            {"3.12": ["2.13.0"], "3.11": ["2.13.0+cpu"]}, ("2.13.0+cpu", "3.11"), id="cuda-build-is-no-candidate"
        ),
        pytest.param({"3.11": ["2.13.0+cpu", "2.11.0+cpu"]}, ("2.11.0+cpu", "3.11"), id="nearest-release"),
        pytest.param(
            {"3.12": ["2.13.0+cpu"], "3.11": ["2.11.0+cpu"]}, ("2.11.0+cpu", "3.11"), id="release-before-python"
        ),
        pytest.param({"3.12": ["2.9.1+cpu", "2.14.0+cpu", "3.0.0+cpu"]}, None, id="outside-the-range"),
        pytest.param({"3.12": []}, None, id="nothing"),
    ],
)
def test_fallback_must_be_the_nearest_cpu_build(offers, expected):
    assert nearest("2.10.0+cpu", offers, python="3.12") == expected


def test_real_vendor_must_never_fall_back():
    err = io.StringIO()
    ui = Reporter(err=err)
    # An index that cannot exist: a real vendor's request is returned as it is, without asking anybody.
    environ = {"TORCH_FL_STOCK_INDEX": "https://nowhere.invalid/simple"}
    assert resolve(DCU, python=DCU.python, forged=False, environ=environ, ui=ui) == StockTorch(
        version="2.10.0+cpu", index="https://nowhere.invalid/simple", python="3.10"
    )
    assert err.getvalue() == ""


def test_stock_torch_must_install_from_its_index():
    assert StockTorch(version="2.10.0+cpu", index=DEFAULT_INDEX, python=CUDA.python).pip_arguments() == (
        "torch==2.10.0+cpu",
        "--index-url",
        DEFAULT_INDEX,
    )
    own = StockTorch(version="2.13.0+cpu", index="", python="3.11")
    assert own.pip_arguments() == ("torch==2.13.0+cpu",)
    assert own.base_version == "2.13.0"


def test_index_that_cannot_be_reached_must_be_named_with_its_variables(tmp_path):
    # No such version, whatever else pip is configured to look through.
    stock = StockTorch(version="2.13.99+cpu", index=(tmp_path / "nowhere").as_uri(), python="3.11")
    with pytest.raises(ToolError) as caught:
        install_stock(Path(sys.executable), stock, os.environ, Reporter(err=io.StringIO()))
    assert caught.value.hint == (
        f"torch==2.13.99+cpu was to come from {stock.index}: "
        "TORCH_FL_STOCK_INDEX names another (empty: pip's own), TORCH_FL_STOCK_TORCH another version"
    )


@pytest.mark.parametrize(
    ("variables", "program", "hint"),
    [
        ({}, "gcc", "install gcc, or name another compiler with CC"),
        ({"CC": "true", "CXX": "no-such-g++ -O2"}, "no-such-g++", "install g++, or name another compiler with CXX"),
    ],
    ids=["none", "named"],
)
def test_missing_compiler_must_be_named_before_anything_is_built(tmp_path, variables, program, hint):
    (tmp_path / "true").touch(mode=0o755)
    with pytest.raises(ToolError, match=f"no compiler '{program}' on PATH".replace("+", "[+]")) as caught:
        check_compilers({**variables, "PATH": str(tmp_path)})
    assert caught.value.hint == hint
