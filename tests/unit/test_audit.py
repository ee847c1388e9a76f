"""The audit as a whole: a clean wheel gives no finding, codes are documented, and the report reads well."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
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

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENT = REPOSITORY / "docs" / "audit-codes.md"


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


def write_endless_wheel(folder):
    """Write a wheel with a member of a tebibyte, nearly all of it a hole in the file: reading it takes many minutes."""
    path = folder / "torch_fl-0.1.0-cp312-cp312-linux_x86_64.whl"
    info = zipfile.ZipInfo("torch_fl/endless.bin")
    with path.open("wb") as stream, zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("torch_fl-0.1.0.dist-info/WHEEL", "")
        info.file_size = info.compress_size = 1 << 40
        info.CRC = 0
        info.header_offset = stream.tell()
        stream.write(info.FileHeader(zip64=True))
        archive.start_dir = stream.seek(info.file_size, os.SEEK_CUR)
        archive.filelist.append(info)
    return path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_stopped_audit_must_not_read_on_and_leave_nothing_behind(tmp_path, number):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "bundle", "audit", str(write_endless_wheel(tmp_path))]
    environ = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(command, cwd=REPOSITORY, env=environ, stderr=subprocess.PIPE, text=True) as tool:
        try:
            threads = Path(f"/proc/{tool.pid}/task")
            while not (any(scratch.iterdir()) and len(list(threads.iterdir())) > 1):
                assert tool.poll() is None, tool.communicate()[1]
                time.sleep(0.01)
            tool.send_signal(number)
            _, said = tool.communicate(timeout=60)
        finally:
            tool.kill()
    assert tool.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    assert "run the same command again" in said
    assert list(scratch.iterdir()) == []
