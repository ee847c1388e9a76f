"""Repack: what the finished wheel holds and says of itself."""

from __future__ import annotations

import csv
import email
import hashlib
import io
import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bundle.audit import audit
from bundle.backends import BACKENDS, CUDA, DCU
from bundle.errors import MalformedError
from bundle.repack import edit_metadata, repack_stage
from tests.support.repacking import inputs_of
from tests.support.wheels import RawEntry, WheelSpec, entries, metadata, write_raw

ROOT = Path(__file__).resolve().parents[2]


def headers(path, name):
    with zipfile.ZipFile(path) as archive:
        (member,) = [entry for entry in archive.namelist() if entry.endswith(f".dist-info/{name}")]
        return email.message_from_bytes(archive.read(member))


@pytest.mark.parametrize("backend", [pytest.param(backend, id=name) for name, backend in BACKENDS.items()])
def test_a_repacked_wheel_must_audit_clean_and_carry_the_backends_label(tmp_path, ui, backend):
    spec = WheelSpec(backend=backend)
    made = repack_stage(inputs_of(spec, tmp_path), ui)
    assert made == tmp_path / "dist" / spec.file_name
    assert audit(made).findings == ()
    assert [path.name for path in made.parent.iterdir()] == [made.name]


@pytest.mark.parametrize(
    ("label", "version"),
    [
        pytest.param("metax3.8.1", "0.1.0+metax3.8.1", id="override"),
        pytest.param("MACA-3_8", "0.1.0+maca.3.8", id="normalised"),
        pytest.param("", "0.1.0", id="none"),
    ],
)
def test_the_label_must_be_the_same_in_file_name_metadata_dist_info_and_manifest(tmp_path, ui, label, version):
    made = repack_stage(inputs_of(WheelSpec(), tmp_path, label=label), ui)
    assert made.name == f"torch_fl-{version}-cp312-cp312-linux_x86_64.whl"
    assert headers(made, "METADATA")["Version"] == version
    with zipfile.ZipFile(made) as archive:
        manifest = json.loads(archive.read("torch_fl/_bundle.json"))
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert tops == {"torch_fl", "torch_fl.pth", f"torch_fl-{version}.dist-info"}
    assert manifest["label"] == version.partition("+")[2]
    assert audit(made).findings == ()


def test_wheel_must_state_its_tag_and_that_it_is_not_pure(tmp_path, ui):
    wheel = headers(repack_stage(inputs_of(WheelSpec(backend=DCU), tmp_path), ui), "WHEEL")
    assert wheel.items() == [
        ("Wheel-Version", "1.0"),
        ("Generator", "torch_fl-bundle"),
        ("Root-Is-Purelib", "false"),
        ("Tag", "cp310-cp310-linux_x86_64"),
    ]


def test_torch_must_be_pinned_and_the_bundles_requirements_added_and_others_kept(tmp_path, ui):
    spec = WheelSpec(backend=CUDA, requirements=("nvidia-nccl-cu13==2.28", "nvidia-cublas==13.0"))
    made = repack_stage(inputs_of(spec, tmp_path), ui)
    assert headers(made, "METADATA").get_all("Requires-Dist") == [
        "torch==2.10.0",
        "numpy>=2; extra == 'np'",
        "nvidia-nccl-cu13==2.28",
        "nvidia-cublas==13.0",
    ]


def test_metadata_must_keep_everything_else_byte_for_byte():
    manifest = WheelSpec(requirements=("nvidia-nccl==2.28",)).bundle_manifest()
    before = metadata("0.1.0", ["Torch (>=2.10)", "nvidia-nccl==2.28"])
    before = before.replace("tënsors".encode(), b"t\xc3\xabnsors " * 30)
    after = edit_metadata(before, version="0.1.0+x", manifest=manifest)
    assert after.partition(b"\n\n")[2] == before.partition(b"\n\n")[2]
    lines = after.partition(b"\n\n")[0].decode().splitlines()
    kept = [line for line in before.partition(b"\n\n")[0].decode().splitlines() if not line.startswith(("Req", "Ver"))]
    assert [line for line in lines if not line.startswith(("Req", "Ver"))] == kept
    assert [line for line in lines if line.startswith(("Req", "Ver"))] == [
        "Version: 0.1.0+x",
        "Requires-Dist: torch==2.10.0",
        "Requires-Dist: nvidia-nccl==2.28",
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"Name: torch_fl\n\n", "METADATA has no Version", id="no-version"),
        pytest.param(
            b"Version: 1\nRequires-Dist: -\n\n",
            "METADATA or _bundle.json requires '-', which is no requirement",
            id="no-requirement",
        ),
    ],
)
def test_metadata_that_cannot_be_edited_must_be_refused(data, message):
    with pytest.raises(MalformedError) as caught:
        edit_metadata(data, version="1", manifest=WheelSpec().bundle_manifest())
    assert str(caught.value) == message


def test_a_manifests_requirement_that_is_none_must_be_refused():
    manifest = WheelSpec(requirements=("(((",)).bundle_manifest()
    with pytest.raises(MalformedError, match=r"_bundle\.json requires '\(\(\(', which is no requirement"):
        edit_metadata(b"Version: 1\n\n", version="1", manifest=manifest)


_REPACK = """
import io, os, sys
os.umask(int(sys.argv[1], 8))
from pathlib import Path
from bundle.repack import RepackInputs, repack_stage
from bundle.backends import DCU
from bundle.ui import Reporter
inputs = RepackInputs(thin_wheel=Path(sys.argv[2]), bundle_dir=Path("bundle"), backend=DCU, version_label=None,
                      dist=Path("dist"))
repack_stage(inputs, Reporter(err=io.StringIO()))
"""


def test_b48_equal_inputs_must_give_equal_bytes_in_any_folder_umask_zone_and_locale(tmp_path):
    sums = set()
    for number, (umask, extra) in enumerate(
        [
            ("0022", {"TZ": "UTC"}),
            ("0077", {"TZ": "Asia/Shanghai", "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": "1700000000"}),
        ]
    ):
        folder = tmp_path / f"build {number}"
        thin = WheelSpec(backend=DCU).write_thin(folder / "compile")
        WheelSpec(backend=DCU).write_bundle(folder / "bundle")
        for path in folder.rglob("*"):
            os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))
            path.chmod(path.stat().st_mode & ~number * 0o077 if number else path.stat().st_mode)
        command = [sys.executable, "-c", _REPACK, umask, str(thin)]
        environment = {
            **os.environ,
            **extra,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        subprocess.run(command, cwd=folder, env=environment, check=True)
        (made,) = (folder / "dist").iterdir()
        sums.add(hashlib.sha256(made.read_bytes()).hexdigest())
    assert len(sums) == 1


def test_b45_names_with_commas_and_quotes_must_be_recorded_and_tampering_found(tmp_path, ui):
    odd = 'lib,odd "x".so.1'
    spec = WheelSpec(backend=DCU)
    spec.elves[f"torch_fl/lib_dcu/{odd}"] = spec.elves["torch_fl/lib_dcu/libmpi-3f.so.40"].__class__(
        soname=odd, runpath="$ORIGIN"
    )
    made = repack_stage(inputs_of(spec, tmp_path), ui)
    with zipfile.ZipFile(made) as archive:
        rows = list(csv.reader(io.StringIO(archive.read(f"{spec.dist_info}/RECORD").decode())))
    assert [row[0] for row in rows if "odd" in row[0]] == [f"torch_fl/lib_dcu/{odd}"]
    assert audit(made).findings == ()
    raw = [
        RawEntry(name=entry.name, data=b"#" + entry.data[1:], mode=entry.mode)
        if entry.name.endswith("vendor_version.py")
        else entry
        for entry in entries(made)
    ]
    codes = [finding.code for finding in audit(write_raw(made, raw)).findings]
    assert codes == ["B004", "B107"]


def test_b46_directory_entries_and_signatures_must_be_dropped(tmp_path, ui):
    spec = WheelSpec()
    thin = spec.write_thin(tmp_path / "compile")
    extra = [
        RawEntry(name="torch_fl/", data=b"", mode=stat.S_IFDIR | 0o700),
        RawEntry(name="torch_fl-0.1.0.dist-info/RECORD.jws", data=b"{}", mode=stat.S_IFREG | 0o600),
    ]
    write_raw(thin, [*entries(thin), *extra])
    made = repack_stage(inputs_of(spec, tmp_path, thin=thin), ui)
    assert audit(made).findings == ()
    with zipfile.ZipFile(made) as archive:
        assert [name for name in archive.namelist() if name.endswith(("/", ".jws"))] == []


def test_b47_modes_must_be_kept_for_executables_and_normalised_otherwise(tmp_path, ui):
    spec = WheelSpec()
    _, members = spec.thin()
    members["torch_fl/bin/ptxas"] = b"tool"
    thin = spec.thin()[0].write(tmp_path / "compile", members)
    modes = {"torch_fl/bin/ptxas": 0o700, "torch_fl/__init__.py": 0o600, "torch_fl/lib/libflagos.so": 0o444}
    raw = [
        RawEntry(name=entry.name, data=entry.data, mode=stat.S_IFREG | modes.get(entry.name, 0o640))
        for entry in entries(thin)
    ]
    made = repack_stage(inputs_of(spec, tmp_path, thin=write_raw(thin, raw)), ui)
    found = {entry.name: entry.mode & 0o7777 for entry in entries(made)}
    assert {name: found[name] for name in modes} == {
        "torch_fl/bin/ptxas": 0o755,
        "torch_fl/__init__.py": 0o644,
        "torch_fl/lib/libflagos.so": 0o755,
    }
    assert audit(made).findings == ()
