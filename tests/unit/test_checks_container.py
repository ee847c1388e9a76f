"""The wheel as a file, its names and metadata: each code is provoked by a wheel with exactly one fault."""

from __future__ import annotations

import json
import stat
from dataclasses import replace

import pytest

from bundle.backends import CUDA
from bundle.sbom import sbom_path
from tests.support.audits import (
    INFO,
    LIB,
    MANIFEST,
    NAME,
    RECORD,
    found,
    raw_audit,
)
from tests.support.wheels import RawEntry, WheelSpec, entries, metadata, wheel, write_raw


def test_a_wheel_without_record_must_be_found(tmp_path):
    assert raw_audit(tmp_path, lambda entry: [] if entry.name == RECORD else [entry]) == [
        ("B001", RECORD, "the wheel has no RECORD")
    ]


def test_a_record_that_is_not_csv_must_be_found(tmp_path):
    def change(entry):
        return [replace(entry, data=entry.data + b"a,b\n") if entry.name == RECORD else entry]

    lines = len(WheelSpec().members()) + 2
    assert raw_audit(tmp_path, change) == [("B001", RECORD, f"line {lines}: 2 fields, expected 3")]


def test_a_file_that_record_lacks_must_be_found(tmp_path):
    def change(entry):
        extra = RawEntry(name="torch_fl/__late.py", data=b"", mode=stat.S_IFREG | 0o644)
        return [entry, extra] if entry.name == "torch_fl/__init__.py" else [entry]

    assert raw_audit(tmp_path, change) == [("B002", "torch_fl/__late.py", "is in the wheel, but not listed")]


def test_a_file_that_only_record_has_must_be_found(tmp_path):
    assert raw_audit(tmp_path, lambda entry: [] if entry.name == "torch_fl/__init__.py" else [entry]) == [
        ("B003", "torch_fl/__init__.py", "is listed, but the wheel lacks it")
    ]


def test_one_changed_byte_must_be_found_by_record(tmp_path):
    def change(entry):
        return [replace(entry, data=b"x") if entry.name == "torch_fl/__init__.py" else entry]

    assert raw_audit(tmp_path, change) == [("B004", "torch_fl/__init__.py", "1 bytes, RECORD says 0")]


def test_b46_directory_entries_must_be_found(tmp_path):
    def change(entry):
        folder = RawEntry(name="torch_fl/a/", data=b"", mode=stat.S_IFDIR | 0o755)
        return [entry, folder] if entry.name == "torch_fl/_build.json" else [entry]

    found_codes = [code for code, _, _ in raw_audit(tmp_path, change)]
    assert "B005" in found_codes
    sorted_place = raw_audit(
        tmp_path,
        lambda entry: [
            *([RawEntry(name="torch_fl/", data=b"", mode=stat.S_IFDIR | 0o755)] if "_C." in entry.name else []),
            entry,
        ],
    )
    assert sorted_place == [("B005", "torch_fl/", "a directory entry, which RECORD cannot list")]


def test_b44_a_symbolic_link_must_be_found(tmp_path):
    def change(entry):
        link = RawEntry(name="torch_fl/__link.py", data=b"__init__.py", mode=stat.S_IFLNK | 0o777)
        return [entry, link] if entry.name == "torch_fl/__init__.py" else [entry]

    detail = "a symbolic link; an installer writes its target's name as the file's content"
    assert raw_audit(tmp_path, change) == [("B006", "torch_fl/__link.py", detail)]


def test_a_name_that_leads_out_must_be_found(tmp_path):
    members = {**WheelSpec().members(), "torch_fl/../../x.py": b""}
    assert found(WheelSpec().write(tmp_path, members)) == [
        ("B007", "torch_fl/../../x.py", "leads out of the installation directory")
    ]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_of_one_name_must_be_found(tmp_path):
    assert raw_audit(tmp_path, lambda entry: [entry] * (1 + (entry.name == "torch_fl/__init__.py"))) == [
        ("B007", "torch_fl/__init__.py", "2 entries of this name")
    ]


@pytest.mark.parametrize(
    ("name", "mode", "detail"),
    [
        pytest.param(LIB, 0o644, "mode 0644, expected 0755 for a shared object", id="library"),
        pytest.param("torch_fl/__init__.py", 0o600, "mode 0600, expected 0644 or 0755", id="umask"),
    ],
)
def test_b47_a_wrong_mode_must_be_found(tmp_path, name, mode, detail):
    def change(entry):
        return [replace(entry, mode=stat.S_IFREG | mode) if entry.name == name else entry]

    assert raw_audit(tmp_path, change) == [("B008", name, detail)]


def test_b48_the_time_of_the_build_must_be_found(tmp_path):
    time = (2026, 1, 2, 3, 4, 6)

    def change(entry):
        return [replace(entry, time=time) if entry.name == LIB else entry]

    assert raw_audit(tmp_path, change) == [("B009", LIB, f"time {time}, expected (1980, 1, 1, 0, 0, 0)")]


def test_b48_entries_out_of_order_must_be_found(tmp_path):
    clean = WheelSpec().write(tmp_path)
    raw = entries(clean)
    raw.insert(0, raw.pop())
    assert found(write_raw(clean, raw)) == [("B009", RECORD, f"out of order, expected {raw[1].name} in its place")]


@pytest.mark.parametrize(
    ("name", "findings"),
    [
        pytest.param("torch_fl.whl", [("B010", "torch_fl.whl", "not a wheel's file name")], id="no-wheel-name"),
        pytest.param(
            "torch_gl-0.1.0+metax-cp312-cp312-linux_x86_64.whl",
            [
                (
                    "B010",
                    "torch_gl-0.1.0+metax-cp312-cp312-linux_x86_64.whl",
                    "distribution torch-gl, METADATA says torch_fl, expected torch_fl",
                )
            ],
            id="other-distribution",
        ),
    ],
)
def test_a_wrong_file_name_must_be_found(tmp_path, name, findings):
    assert found(WheelSpec().write(tmp_path, name=name)) == findings


def test_versions_that_disagree_must_be_found(tmp_path):
    spec = WheelSpec(build={"version": "0.2.0"})
    members = spec.members()
    members[f"{INFO}/METADATA"] = metadata("0.1.0", ["torch==2.10.0"])
    sbom = json.loads(members[sbom_path(INFO)])
    sbom["metadata"]["component"]["version"] = "0.1.0"
    members[sbom_path(INFO)] = json.dumps(sbom).encode()
    assert found(spec.write(tmp_path, members)) == [
        ("B010", f"{INFO}/METADATA", "version 0.1.0, the file name says 0.1.0+metax"),
        ("B010", "torch_fl/_build.json", "version 0.2.0, the file name says 0.1.0+metax"),
    ]


def test_b49_tags_that_disagree_must_be_found(tmp_path):
    spec = WheelSpec()
    members = spec.members()
    members[f"{INFO}/WHEEL"] = wheel("py3-none-any", pure="true")
    members["torch_fl/_C.cpython-310-x86_64-linux-gnu.so"] = members.pop(spec.extension)
    assert found(spec.write(tmp_path, members)) == [
        ("B011", f"{INFO}/WHEEL", "tags py3-none-any, the file name says cp312-cp312-linux_x86_64"),
        ("B011", f"{INFO}/WHEEL", "Root-Is-Purelib is true, expected false"),
        ("B011", NAME, "the extension module is for cp310-cp310-linux_x86_64"),
        ("B011", "torch_fl/_build.json", "cp312 x86_64, the extension is cp310 x86_64"),
        ("B011", MANIFEST, "cp312 x86_64, the extension is cp310 x86_64"),
    ]


def test_b49_an_extension_of_an_earlier_python_must_be_found(tmp_path):
    spec = WheelSpec()
    members = spec.members()
    members["torch_fl/_C.cpython-310-x86_64-linux-gnu.so"] = members[spec.extension]
    detail = "2 extension modules torch_fl/_C.cpython-*.so, expected one"
    assert found(spec.write(tmp_path, members)) == [("B011", NAME, detail)]


@pytest.mark.parametrize(
    ("needs", "detail"),
    [
        pytest.param((), "requires nothing, expected torch==2.10.0", id="none"),
        pytest.param(("torch>=2.10",), "requires torch>=2.10, expected torch==2.10.0", id="range"),
        pytest.param(("torch==2.10.0", "torch<3"), "requires torch==2.10.0, torch<3, expected torch==2.10.0", id="two"),
        pytest.param(("torch==2.10.0", "-"), "Requires-Dist '-' is no requirement: ", id="no-requirement"),
    ],
)
def test_a_requirement_that_does_not_fit_must_be_found(tmp_path, needs, detail):
    spec = WheelSpec()
    members = {**spec.members(), f"{INFO}/METADATA": metadata(spec.version, needs)}
    ((code, where, said),) = found(spec.write(tmp_path, members))
    assert (code, where) == ("B012", f"{INFO}/METADATA")
    assert said.startswith(detail)


def test_a_missing_driver_distribution_must_be_found(tmp_path):
    spec = WheelSpec(backend=CUDA, requirements=("nvidia-nccl==2.28",))
    where = f"{spec.dist_info}/METADATA"
    members = {**spec.members(), where: metadata(spec.version, ["torch==2.10.0"])}
    assert found(spec.write(tmp_path, members)) == [("B012", where, "requires nothing, expected nvidia-nccl==2.28")]


def test_a_manifests_requirement_that_is_none_must_be_found(tmp_path):
    spec = WheelSpec(backend=CUDA, requirements=("(((",))
    members = {**spec.members(), f"{spec.dist_info}/METADATA": metadata(spec.version, ["torch==2.10.0"])}
    expected = ("B012", "torch_fl/_bundle.json", "asks for '(((', which is no requirement")
    assert found(spec.write(tmp_path, members)) == [expected]


def test_a_missing_bill_of_materials_must_be_found(tmp_path):
    members = WheelSpec().members()
    where = sbom_path(INFO)
    del members[where]
    assert found(WheelSpec().write(tmp_path, members)) == [("B013", where, "the wheel has no bill of materials")]


def test_a_bill_of_materials_that_disagrees_must_be_found(tmp_path):
    members = WheelSpec().members()
    where = sbom_path(INFO)
    bill = json.loads(members[where])
    bill["metadata"]["component"]["version"] = "9"
    gone = bill["components"].pop(0)
    members[where] = json.dumps(bill).encode()
    assert found(WheelSpec().write(tmp_path, members)) == [
        ("B013", where, "is about version 9, METADATA says 0.1.0+metax"),
        (
            "B013",
            where,
            f"{gone['name']}: sha256 not listed, the manifest says {gone['hashes'][0]['content']}",
        ),
    ]


def test_a_bill_of_materials_of_another_form_must_be_found(tmp_path):
    where = sbom_path(INFO)
    members = {**WheelSpec().members(), where: b'{"bomFormat": "CycloneDX", "specVersion": "1.4"}'}
    assert found(WheelSpec().write(tmp_path, members)) == [("B013", where, "not CycloneDX 1.6")]
