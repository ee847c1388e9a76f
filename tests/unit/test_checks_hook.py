"""Check B014: the file that every interpreter runs, and torch's entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bundle.audit import audit
from bundle.checks_hook import ENTRY_POINTS, HOOK, HOOK_FILE
from tests.support.wheels import WheelSpec, entry_points

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPOSITORY = Path(__file__).parents[2]
INFO = WheelSpec().dist_info
POINTS = f"{INFO}/entry_points.txt"
SAYS = f"expected {ENTRY_POINTS}"


def found(folder, **changes):
    """What the audit finds in a wheel with these files changed, or left out where None."""
    members = {**WheelSpec().members(), **{name: data for name, data in changes.items() if data is not None}}
    for name in [name for name, data in changes.items() if data is None]:
        del members[name]
    wheel = WheelSpec().write(folder, members)
    return [(finding.code, finding.where, finding.detail) for finding in audit(wheel).findings]


def test_the_hook_that_the_audit_expects_must_be_the_one_that_is_built_in():
    assert (REPOSITORY / HOOK_FILE).read_text() == HOOK


def test_the_entry_points_that_the_audit_expects_must_be_the_ones_that_are_built_in():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert {**project["entry-points"], "console_scripts": project["scripts"]} == ENTRY_POINTS


def test_a_wheel_with_its_hook_must_be_clean(tmp_path):
    assert found(tmp_path) == []


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        pytest.param(None, "is missing", id="missing"),
        pytest.param(b"import evil\n", f"says 'import evil\\n', expected {HOOK!r}", id="other"),
        pytest.param(
            HOOK.encode() + b"import more\n",
            f"says 'import torch_fl_boot.hook\\nimport more\\n', expected {HOOK!r}",
            id="with-more-lines",
        ),
    ],
)
def test_a_hook_that_is_not_ours_must_be_found(tmp_path, data, detail):
    assert found(tmp_path, **{HOOK_FILE: data}) == [("B014", HOOK_FILE, detail)]


@pytest.mark.parametrize("name", ["more.pth", "sitecustomize.py", "usercustomize/__init__.py"])
def test_another_file_that_runs_at_every_start_must_be_found(tmp_path, name):
    finding = ("B014", name, "runs at every interpreter's start, as torch_fl.pth alone may")
    assert finding in found(tmp_path, **{name: b"import os\n"})


def test_an_entry_point_whose_name_differs_in_case_must_be_found(tmp_path):
    (finding,) = found(tmp_path, **{POINTS: entry_points().replace("torch-fl", "Torch-FL").encode()})
    assert finding[:2] == ("B014", POINTS)
    assert "'Torch-FL'" in finding[2]


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        pytest.param(None, "is missing", id="missing"),
        pytest.param(b"", f"says {{}}, {SAYS}", id="empty"),
        pytest.param(b"torch_fl = a:b\n", "cannot be read: File contains no section headers.", id="no-section"),
        pytest.param(
            b"[torch.backends]\ntorch_fl = a:b\n",
            f"says {{'torch.backends': {{'torch_fl': 'a:b'}}}}, {SAYS}",
            id="other",
        ),
    ],
)
def test_an_entry_point_that_is_not_ours_must_be_found(tmp_path, data, detail):
    assert found(tmp_path, **{POINTS: data}) == [("B014", POINTS, detail)]
