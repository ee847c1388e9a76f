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
from bundle.backends import BACKENDS, CUDA, DCU, METAX, PPU
from bundle.errors import MalformedError, NothingBundledError, RefusedError, TamperedBundleError, UsageError
from bundle.repack import RepackInputs, edit_metadata, labelled, repack_stage
from tests.support.wheels import RawEntry, WheelSpec, entries, metadata, write_raw

ROOT = Path(__file__).resolve().parents[2]
THIN = "torch_fl-0.1.0-cp312-cp312-linux_x86_64.whl"


def inputs_of(spec, folder, *, thin=None, label=None, backend=None):
    return RepackInputs(
        thin_wheel=thin or spec.write_thin(folder / "compile"),
        bundle_dir=spec.write_bundle(folder / "bundle"),
        backend=backend or spec.backend,
        version_label=label,
        dist=folder / "dist",
    )


def headers(path, name):
    with zipfile.ZipFile(path) as archive:
        (member,) = [entry for entry in archive.namelist() if entry.endswith(f".dist-info/{name}")]
        return email.message_from_bytes(archive.read(member))


def refusal(kind, inputs, ui):
    with pytest.raises(kind) as caught:
        repack_stage(inputs, ui)
    assert not inputs.dist.exists() or list(inputs.dist.iterdir()) == []
    return caught.value


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
    assert tops == {"torch_fl", f"torch_fl-{version}.dist-info"}
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
            b"Version: 1\nRequires-Dist: -\n\n", "METADATA requires '-', which is no requirement", id="no-requirement"
        ),
    ],
)
def test_metadata_that_cannot_be_edited_must_be_refused(data, message):
    with pytest.raises(MalformedError) as caught:
        edit_metadata(data, version="1", manifest=WheelSpec().bundle_manifest())
    assert str(caught.value) == message


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


def test_pip_must_install_the_wheel_with_every_file_intact(tmp_path, ui):
    made = repack_stage(inputs_of(WheelSpec(backend=PPU), tmp_path), ui)
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    target = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--disable-pip-version-check", "-q"]
    foreign = ["--python-version", "3.12", "--only-binary=:all:", "--implementation", "cp", "--abi", "cp312"]
    command += [
        "--target",
        str(target),
        *(foreign if version != "312" else []),
        "--platform",
        "linux_x86_64",
        str(made),
    ]
    subprocess.run(command, check=True)
    for member in entries(made):
        installed = target / member.name
        if not member.name.endswith("/RECORD"):
            assert installed.read_bytes() == member.data, member.name
    assert (target / "torch_fl/lib_ppu/libc10.so").stat().st_mode & 0o111


# Refusals


def test_b50_a_missing_thin_wheel_must_name_the_compile_stage(tmp_path, ui):
    error = refusal(NothingBundledError, inputs_of(WheelSpec(), tmp_path, thin=tmp_path / "none.whl"), ui)
    assert str(error) == f"metax: no thin wheel at {tmp_path}/none.whl"
    assert (error.hint, error.exit_code) == ("run `inv compile --backend metax` first", 3)


def test_b50_a_missing_bundle_must_name_the_bundle_stage(tmp_path, ui):
    inputs = inputs_of(WheelSpec(), tmp_path)
    (inputs.bundle_dir / "_bundle.json").unlink()
    error = refusal(NothingBundledError, inputs, ui)
    assert (error.hint, error.exit_code) == ("run `inv bundle --backend metax` first", 3)


def test_a_tampered_bundle_must_be_refused(tmp_path, ui):
    inputs = inputs_of(WheelSpec(), tmp_path)
    with (inputs.bundle_dir / "lib_maca" / "libc10.so").open("ab") as stream:
        stream.write(b"\0")
    error = refusal(TamperedBundleError, inputs, ui)
    assert str(error) == "metax: bundled files differ from their manifest: libc10.so"
    assert error.exit_code == 9


def test_upstream_315_a_thin_wheel_without_identity_must_be_refused(tmp_path, ui):
    spec, members = WheelSpec().thin()
    del members["torch_fl/_build.json"]
    thin = spec.write(tmp_path / "compile", members)
    error = refusal(RefusedError, inputs_of(WheelSpec(), tmp_path, thin=thin), ui)
    assert str(error) == (
        f"{THIN}: torch_fl/_build.json is missing, so the wheel does not say which backend and torch it was compiled "
        "for, and at import it would not use its bundle"
    )
    assert (error.hint, error.exit_code) == ("run `inv compile --backend metax` again", 9)


@pytest.mark.parametrize(
    ("build", "faults"),
    [
        pytest.param(
            {"backend": "ppu", "bundle_dir": "lib_ppu"},
            [
                "torch_fl/_build.json: backend: the plugin has ppu, the bundle metax",
                "torch_fl/_build.json: bundle directory: the plugin has lib_ppu, the bundle lib_maca",
            ],
            id="backend",
        ),
        pytest.param(
            {"torch": "2.13.0+cpu"},
            ["torch_fl/_build.json: torch base version: the plugin has 2.13.0, the bundle 2.10.0"],
            id="torch",
        ),
        pytest.param(
            {"python": "3.10"},
            [
                "B011 torch_fl/_build.json: cp310 x86_64, the extension is cp312 x86_64",
                "torch_fl/_build.json: Python: the plugin has cp310, the bundle cp312",
            ],
            id="b49-python",
        ),
    ],
)
def test_a_thin_wheel_that_does_not_fit_the_bundle_must_be_refused_with_all_reasons(tmp_path, ui, build, faults):
    thin = WheelSpec(build=build).write_thin(tmp_path / "compile")
    error = refusal(RefusedError, inputs_of(WheelSpec(), tmp_path, thin=thin), ui)
    listed = "\n".join(f"  {fault}" for fault in faults)
    assert str(error) == f"{THIN} cannot be joined with the metax bundle:\n{listed}"
    assert error.hint == (
        "run `inv compile --backend metax` again; if the bundle is the wrong one, `inv bundle --backend metax`"
    )
    assert error.exit_code == 9


@pytest.mark.parametrize("leftover", ["torch_fl/lib_maca/libc10.so", "torch_fl/lib_dcu/x", "torch_fl/_bundle.json"])
def test_leftovers_in_the_thin_wheel_must_be_refused(tmp_path, ui, leftover):
    spec, members = WheelSpec().thin()
    data = WheelSpec().members().get(leftover, b"")
    thin = spec.write(tmp_path / "compile", {**members, leftover: data})
    error = refusal(RefusedError, inputs_of(WheelSpec(), tmp_path, thin=thin), ui)
    assert str(error) == (
        f"{THIN} cannot be joined with the metax bundle:\n  {leftover}: left over from an earlier bundle"
    )


def test_b44_a_link_in_the_thin_wheel_must_be_refused(tmp_path, ui):
    thin = WheelSpec().write_thin(tmp_path / "compile")
    link = RawEntry(name="torch_fl/link.so", data=b"lib/libflagos.so", mode=stat.S_IFLNK | 0o777)
    write_raw(thin, [*entries(thin), link])
    error = refusal(RefusedError, inputs_of(WheelSpec(), tmp_path, thin=thin), ui)
    assert str(error).splitlines()[1:] == [
        "  B006 torch_fl/link.so: a symbolic link; an installer writes its target's name as the file's content"
    ]


def test_b49_a_renamed_thin_wheel_must_be_refused(tmp_path, ui):
    name = "torch_fl-0.1.0-cp310-cp310-linux_x86_64.whl"
    thin = WheelSpec().write_thin(tmp_path / "compile").rename(tmp_path / name)
    error = refusal(RefusedError, inputs_of(WheelSpec(), tmp_path, thin=thin), ui)
    said = "tags cp312-cp312-linux_x86_64, the file name says cp310-cp310-linux_x86_64"
    assert str(error).splitlines()[1:] == [
        f"  B011 torch_fl-0.1.0.dist-info/WHEEL: {said}",
        f"  B011 {name}: the extension module is for cp312-cp312-linux_x86_64",
    ]


@pytest.mark.parametrize("label", ["a b", "metax!", "+x", "metax..1", "../x", "é"])
def test_a_label_that_pep_440_does_not_allow_must_be_refused(tmp_path, ui, label):
    error = refusal(UsageError, inputs_of(WheelSpec(), tmp_path, label=label), ui)
    assert str(error) == (
        f"version label {label!r} is not allowed; expected letters and digits with single dots between, "
        "such as metax3.8.1 (PEP 440 local version)"
    )
    assert error.exit_code == 2


def test_a_version_that_has_a_label_already_must_be_refused():
    with pytest.raises(RefusedError) as caught:
        labelled("0.1.0+dirty", "metax")
    assert str(caught.value) == "the thin wheel's version 0.1.0+dirty has a local label already; repack sets it"


def test_a_thin_wheel_that_is_no_wheel_must_be_refused(tmp_path, ui):
    thin = tmp_path / THIN
    thin.write_bytes(b"no zip")
    error = refusal(MalformedError, inputs_of(WheelSpec(backend=METAX), tmp_path, thin=thin), ui)
    assert str(error) == f"{thin}: not a wheel: File is not a zip file"
    assert error.exit_code == 8
