"""Which stock torch is used, and when a fallback is allowed."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bundle.backends import CUDA, DCU
from bundle.errors import ToolError, UsageError
from bundle.interpreters import check_compilers
from bundle.stock import DEFAULT_INDEX, StockTorch, install_stock, nearest, requested, resolve
from bundle.ui import Reporter

REPOSITORY = Path(__file__).parents[2]


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


def test_real_vendor_must_never_fall_back(tmp_path):
    err = io.StringIO()
    ui = Reporter(err=err)
    # An index that cannot exist: a real vendor's request is returned as it is, without asking anybody.
    environ = {"TORCH_FL_STOCK_INDEX": "https://nowhere.invalid/simple"}
    memory = tmp_path / "offers.json"
    assert resolve(DCU, python=DCU.python, forged=False, environ=environ, ui=ui, memory=memory) == StockTorch(
        version="2.10.0+cpu", index="https://nowhere.invalid/simple", python="3.10"
    )
    assert err.getvalue() == ""


PYTHON = "{}.{}".format(*sys.version_info)
RESOLVE = f"""
import os, sys
from pathlib import Path
from bundle.backends import METAX
from bundle.stock import resolve
from bundle.ui import Reporter
ui = Reporter(verbose=True)
print(resolve(METAX, python={PYTHON!r}, forged=True, environ=os.environ, ui=ui, memory=Path(sys.argv[1])).version)
"""


@pytest.fixture
def resolved(tmp_path):
    """Return a function that resolves in a process of its own, and an index that offers a torch of some version."""
    page = tmp_path / "simple" / "torch" / "index.html"
    page.parent.mkdir(parents=True)

    def offer(version):
        tag = f"cp{PYTHON.replace('.', '')}"
        page.write_text(f'<a href="torch-{version}%2Bcpu-{tag}-{tag}-linux_x86_64.whl">torch</a>')

    def run(*, session="demo", before=()):
        # No other interpreter is found, and pip is not configured but for this index.
        environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": page.parents[1].as_uri()}
        environ |= {"PATH": "", "TORCH_FL_STOCK_INDEX": environ["PIP_INDEX_URL"]}
        environ |= {"NOX_CURRENT_SESSION": session} if session else {}
        command = [*before, sys.executable, "-c", RESOLVE, str(tmp_path / "envs" / "offers.json")]
        done = subprocess.run(command, cwd=REPOSITORY, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), done.stderr.count(" index versions torch ")

    return offer, run


def test_an_index_must_be_asked_once_in_one_nox_run_and_in_no_other_way_be_remembered(resolved):
    offer, run = resolved
    offer("2.11.0")
    # Once for the default, and once for what comes nearest.
    assert run() == ("2.11.0+cpu", 2)
    offer("2.10.0")
    assert run() == ("2.11.0+cpu", 0)
    # As the child of another process: of another nox.
    assert run(before=("/bin/sh", "-c", '"$@"; exit $?', "sh")) == ("2.10.0+cpu", 1)
    assert run(session="") == ("2.10.0+cpu", 1)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[]", id="no-object"),
        pytest.param('{"run": "RUN"}', id="no-answers"),
        pytest.param('{"run": "RUN", "answers": []}', id="no-questions"),
        pytest.param("[" * 100_000, id="without-end"),
    ],
)
def test_damaged_memory_of_answers_must_be_made_anew(resolved, tmp_path, text):
    offer, run = resolved
    memory = tmp_path / "envs" / "offers.json"
    offer("2.10.0")
    assert run() == ("2.10.0+cpu", 1)
    memory.write_text(text.replace("RUN", json.loads(memory.read_text())["run"]))
    assert run() == ("2.10.0+cpu", 1)
    assert run() == ("2.10.0+cpu", 0)


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
