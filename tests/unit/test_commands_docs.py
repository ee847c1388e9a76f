"""docs/commands.md and docs/errors.md must be what the code says."""

from __future__ import annotations

import re
from dataclasses import fields
from inspect import isclass
from pathlib import Path

import pytest

from torch_fl_boot import errors
from torch_fl_boot.cli import COMMANDS, EXIT_CODES
from torch_fl_boot.cli_maps import Mapped, Maps
from torch_fl_boot.cli_relink import Changed
from torch_fl_boot.doctor import Diagnosis
from torch_fl_boot.doctor_devices import Device
from torch_fl_boot.doctor_load import Need
from torch_fl_boot.errors import FlagosImportError
from torch_fl_boot.report import CODES, Finding
from torch_fl_boot.status import Status

DOCS = Path(__file__).resolve().parents[2] / "docs"
COMMANDS_TEXT = (DOCS / "commands.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", COMMANDS_TEXT, re.MULTILINE | re.DOTALL))


def rows(text: str, pattern: str) -> dict[str, str]:
    return dict(re.findall(rf"^\| {pattern} \| (.*?) \|", text, re.MULTILINE))


def test_exit_codes_must_be_documented():
    assert rows(COMMANDS_TEXT, r"(\d+)") == {str(code): meaning for code, meaning in EXIT_CODES.items()}


def test_finding_codes_must_be_documented():
    assert rows(COMMANDS_TEXT, r"(R\d+)") == dict(CODES)


def test_every_command_must_have_its_section_and_its_usage():
    names = {command.name for command in COMMANDS}
    assert {name for title in SECTIONS for name in title.split(", ")} == names
    assert set(re.findall(r"^\$ python -m torch_fl (\w+)", COMMANDS_TEXT, re.MULTILINE)) == names


@pytest.mark.parametrize(
    ("section", "kinds"),
    [
        pytest.param("status", [Status], id="status"),
        pytest.param("doctor", [Diagnosis, Device, Finding, Need], id="doctor"),
        pytest.param("maps", [Maps, Mapped], id="maps"),
        pytest.param("relink, restore", [Changed], id="relink"),
    ],
)
def test_json_keys_must_be_documented(section, kinds):
    keys = SECTIONS[section].partition("JSON keys: ")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", keys)) == sorted(field.name for kind in kinds for field in fields(kind))


def test_errors_must_be_documented():
    table = rows((DOCS / "errors.md").read_text(encoding="utf-8"), r"`(\w+)`")
    classes = {name for name, item in vars(errors).items() if isclass(item) and issubclass(item, FlagosImportError)}
    assert table.keys() == classes - {"FlagosImportError"}
