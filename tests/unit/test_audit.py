"""The audit as a whole: a clean wheel gives no finding, codes are documented, and the report reads well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bundle.audit import CHECKS, audit, codes_markdown
from bundle.backends import BACKENDS
from bundle.errors import InputNotFoundError, MalformedError
from tests.support.audits import (
    NAME,
    found,
)
from tests.support.wheels import WheelSpec

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "audit-codes.md"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("backend", [pytest.param(backend, id=name) for name, backend in BACKENDS.items()])
def test_a_clean_wheel_must_give_no_finding(tmp_path, backend, machine):
    report = audit(WheelSpec(backend=backend, machine=machine).write(tmp_path))
    assert report.findings == ()
    assert report.lines()[-1] == f"{report.wheel}: no findings"


def test_a_label_of_ones_own_must_give_no_finding(tmp_path):
    assert found(WheelSpec(label="metax3.8.1").write(tmp_path)) == []


def test_codes_must_be_unique_and_sorted():
    codes = [check.code for check in CHECKS]
    assert codes == sorted(set(codes))


def test_the_document_must_equal_the_registry():
    command = "python -c 'from bundle.audit import codes_markdown as c; print(c(), end=\"\")' > docs/audit-codes.md"
    assert DOCUMENT.read_text() == codes_markdown(), f"run: {command}"


def test_json_must_have_a_schema_sorted_keys_and_titles(tmp_path):
    members = {**WheelSpec().members(), "torch_fl/lib_maca/notes.txt": b""}
    text = audit(WheelSpec().write(tmp_path, members)).to_json()
    report = json.loads(text)
    assert list(report) == ["facts", "findings", "schema", "wheel"]
    assert (report["schema"], report["wheel"]) == (1, NAME)
    assert report["findings"] == [
        {
            "code": "B106",
            "detail": "is in the bundle's folder, but not in the manifest",
            "title": "The bundle's folder holds a file that the manifest does not list",
            "where": "torch_fl/lib_maca/notes.txt",
        }
    ]
    assert report["facts"]["bundle files"] == "10"


def test_text_must_end_with_the_number_of_findings(tmp_path):
    members = {**WheelSpec().members(), "torch_fl/lib_maca/notes.txt": b""}
    lines = audit(WheelSpec().write(tmp_path, members)).lines()
    assert lines[0] == f"wheel: {NAME}"
    assert lines[-2:] == (
        "B106 torch_fl/lib_maca/notes.txt: is in the bundle's folder, but not in the manifest",
        f"{NAME}: 1 finding",
    )


def test_a_missing_wheel_must_be_named(tmp_path):
    with pytest.raises(InputNotFoundError) as caught:
        audit(tmp_path / "a.whl")
    assert (str(caught.value), caught.value.exit_code) == (f"no wheel at {tmp_path}/a.whl", 4)


def test_a_file_that_is_no_wheel_must_be_refused(tmp_path):
    (tmp_path / "a.whl").write_bytes(b"")
    with pytest.raises(MalformedError) as caught:
        audit(tmp_path / "a.whl")
    assert caught.value.exit_code == 8


def test_a_damaged_member_must_be_refused_with_its_name(tmp_path):
    path = WheelSpec().write(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(b"torch_fl/lib_maca/libc10.so") + 40] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(MalformedError, match=r"libc10\.so is damaged"):
        audit(path)


def test_the_audit_must_leave_nothing_behind(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    audit(WheelSpec().write(tmp_path))
    assert list(scratch.iterdir()) == []
