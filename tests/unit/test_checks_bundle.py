"""Identity and bundle: each code is provoked by a wheel with exactly one fault."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bundle.backends import CUDA, DCU, METAX
from tests.support.audits import (
    CPU,
    FLAGOS,
    MANIFEST,
    SHM,
    changed_elf,
    changed_members,
    found,
)
from tests.support.wheels import WheelSpec


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        pytest.param(None, "is missing", id="upstream-315-no-identity"),
        pytest.param(
            b"{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)", id="no-json"
        ),
        pytest.param(b'{"schema": 2}', "schema 2, expected 1", id="schema"),
    ],
)
def test_a_missing_or_unreadable_build_record_must_be_found(tmp_path, text, detail):
    members = WheelSpec().members()
    del members["torch_fl/_build.json"]
    if text is not None:
        members["torch_fl/_build.json"] = text
    assert found(WheelSpec().write(tmp_path, members)) == [("B101", "torch_fl/_build.json", detail)]


def test_b50_a_thin_wheel_must_be_found(tmp_path):
    assert found(WheelSpec(backend=METAX).write_thin(tmp_path)) == [("B102", MANIFEST, "is missing")]


@pytest.mark.parametrize(
    ("build", "detail"),
    [
        pytest.param(
            {"torch": "2.13.0+cpu"}, "torch base version: the plugin has 2.13.0, the bundle 2.10.0", id="torch"
        ),
        pytest.param({"runtime_prefix": "cuda"}, "runtime prefix: the plugin has cuda, the bundle mc", id="prefix"),
        pytest.param(
            {"bundle_dir": "lib"}, "bundle directory: the plugin has lib, the bundle lib_maca", id="directory"
        ),
        pytest.param({"backend": "ppu"}, "backend: the plugin has ppu, the bundle metax", id="backend"),
    ],
)
def test_records_that_disagree_must_be_found(tmp_path, build, detail):
    assert found(WheelSpec(build=build).write(tmp_path)) == [("B103", MANIFEST, detail)]


def test_a_label_that_disagrees_must_be_found(tmp_path):
    spec = WheelSpec(manifest={"label": "maca"})
    assert found(spec.write(tmp_path)) == [("B103", MANIFEST, "label maca, the file name has metax")]


def test_an_accelerator_that_disagrees_must_be_found(tmp_path):
    spec = WheelSpec(build={"accelerator": "cuda"})
    assert found(spec.write(tmp_path)) == [("B103", "torch_fl/_build.json", "accelerator cuda, metax has metax")]


def test_an_unknown_backend_must_be_found(tmp_path):
    spec = WheelSpec(build={"backend": "musa"}, manifest={"backend": "musa"})
    detail = "backend musa is unknown; expected one of metax, ppu, dcu, cuda"
    assert found(spec.write(tmp_path)) == [("B103", "torch_fl/_build.json", detail)]


def test_b50_an_empty_bundle_must_be_found(tmp_path):
    spec = WheelSpec()
    spec.elves = {path: elf for path, elf in spec.elves.items() if not path.startswith("torch_fl/lib_maca/")}
    codes = {code for code, _, _ in found(spec.write(tmp_path))}
    assert codes == {"B104", "B207"}
    spec.elves = {path: replace(elf, needed=("libc.so.6",)) for path, elf in spec.elves.items()}
    assert found(spec.write(tmp_path)) == [("B104", "torch_fl/lib_maca/", "the bundle is empty")]


def test_b50_a_manifest_without_files_must_be_found(tmp_path):
    spec = WheelSpec(manifest={"files": [], "load": []})
    assert found(spec.write(tmp_path)) == [("B104", "torch_fl/lib_maca/", "the bundle is empty")]


def test_a_missing_bundled_file_must_be_found(tmp_path):
    spec = WheelSpec()
    members = spec.members()
    del members[SHM]
    assert found(spec.write(tmp_path, members)) == [("B105", SHM, "is in the manifest, but the wheel lacks it")]


def test_an_unlisted_file_in_the_bundle_must_be_found(tmp_path):
    members = {**WheelSpec().members(), "torch_fl/lib_maca/notes.txt": b""}
    assert found(WheelSpec().write(tmp_path, members)) == [
        ("B106", "torch_fl/lib_maca/notes.txt", "is in the bundle's folder, but not in the manifest")
    ]


def test_a_changed_bundled_file_must_be_found(tmp_path):
    members = WheelSpec().members()
    members[SHM] = members[SHM] + b"\0"
    ((code, where, detail),) = found(WheelSpec().write(tmp_path, members))
    assert (code, where) == ("B107", SHM)
    assert detail.startswith("sha256 ")


def test_a_missing_required_library_must_be_found(tmp_path):
    spec = WheelSpec()
    del spec.elves["torch_fl/lib_maca/libtorch_global_deps.so"]
    detail = "metax needs libtorch_global_deps.so, which is not in the bundle"
    assert found(spec.write(tmp_path)) == [("B108", MANIFEST, detail)]


def test_a_missing_optional_library_must_not_be_found(tmp_path):
    spec = changed_elf(CPU, needed=("libshm.so", "libc10.so"))
    del spec.elves[SHM]
    # Stock torch's copy serves those who need it.
    assert found(spec.write(tmp_path)) == []


def test_a_library_that_no_bundle_of_the_backend_has_must_be_found(tmp_path):
    spec = WheelSpec()
    spec.elves["torch_fl/lib_maca/libodd.so"] = replace(spec.elves[SHM], soname="libodd.so")
    detail = "libodd.so is not among the files that a metax bundle holds"
    assert found(spec.write(tmp_path)) == [("B108", MANIFEST, detail)]


def test_a_vendor_core_on_cuda_must_be_complete(tmp_path):
    details = [
        detail for code, _, detail in found(WheelSpec(backend=CUDA, manifest={"core": "vendor"}).write(tmp_path))
    ]
    assert "cuda needs libtorch_python.so, which is not in the bundle" in details
    assert "cuda needs libshm.so, which is not in the bundle" not in details


def test_a_missing_version_file_must_be_found(tmp_path):
    spec = WheelSpec(backend=DCU)
    spec.data.clear()
    detail = "vendor_version.py is missing, from which torch.version's fields are restored"
    assert found(spec.write(tmp_path)) == [("B109", MANIFEST, detail)]


def test_missing_version_fields_must_be_found(tmp_path):
    spec = WheelSpec(backend=DCU, manifest={"version_fields": {}})
    detail = "no version fields, although the vendor's version file is there"
    assert found(spec.write(tmp_path)) == [("B109", MANIFEST, detail)]


def test_a_leftover_of_another_backend_must_be_found(tmp_path):
    members = {**WheelSpec().members(), "torch_fl/lib_dcu/vendor_version.py": b""}
    detail = "belongs to the backend dcu, this wheel is for metax"
    assert found(WheelSpec().write(tmp_path, members)) == [("B110", "torch_fl/lib_dcu/vendor_version.py", detail)]


def test_a_missing_plugin_library_must_be_found(tmp_path):
    spec = WheelSpec()
    del spec.elves[FLAGOS]
    assert found(spec.write(tmp_path)) == [("B111", FLAGOS, "is missing")]


def test_a_foreign_library_beside_the_plugin_must_be_found(tmp_path):
    spec = WheelSpec()
    spec.elves["torch_fl/lib/libodd.so"] = replace(spec.elves[FLAGOS], soname="libodd.so")
    detail = "is not one of the plugin's libraries: libtorch_fl.so, libtorch_bindings.so, libflagos.so"
    assert found(spec.write(tmp_path)) == [("B111", "torch_fl/lib/libodd.so", detail)]


@pytest.mark.parametrize(
    ("key", "value", "detail"),
    [
        pytest.param("soname", None, "soname is libshm.so, the manifest says (none)", id="soname"),
        pytest.param("needed", [], "DT_NEEDED is libc10.so, libc.so.6, the manifest says (none)", id="needed"),
        pytest.param("runpath", ["$ORIGIN"], "RUNPATH is $ORIGIN, $ORIGIN/../..", id="runpath"),
    ],
)
def test_a_manifest_that_misstates_a_library_must_be_found(tmp_path, key, value, detail):
    spec = WheelSpec()
    files = json.loads(spec.bundle_manifest().to_json())["files"]
    for file in files:
        if file["name"] == "libshm.so":
            file[key] = value
    ((code, where, said),) = found(spec.write(tmp_path, changed_members(spec, files=files)))
    assert (code, where) == ("B112", SHM)
    assert said.startswith(detail)


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        pytest.param(lambda load: load[:-1], "the load order has {last} 0 times, expected once", id="missing"),
        pytest.param(lambda load: [*load, load[-1]], "the load order has {last} 2 times, expected once", id="twice"),
        pytest.param(
            lambda load: [*load, {"name": "libodd.so", "when": "always"}],
            "the load order has libodd.so, which is no library of the bundle",
            id="unknown",
        ),
    ],
)
def test_a_load_order_that_does_not_cover_the_bundle_must_be_found(tmp_path, change, detail):
    spec = WheelSpec()
    load = json.loads(spec.bundle_manifest().to_json())["load"]
    spec.manifest = {"load": change(load)}
    assert found(spec.write(tmp_path)) == [("B113", MANIFEST, detail.format(last=load[-1]["name"]))]


def test_a_load_order_against_dt_needed_must_be_found(tmp_path):
    spec = changed_elf(CPU, needed=("libc.so.6",))
    load = json.loads(spec.bundle_manifest().to_json())["load"]
    core = [step for step in load if step["name"] == "libc10.so"]
    shm = [step for step in load if step["name"] == "libshm.so"]
    spec.manifest = {"load": [*shm, *core, *(step for step in load if step not in (*core, *shm))]}
    detail = "the load order has libshm.so before libc10.so, which it needs"
    assert found(spec.write(tmp_path)) == [("B114", MANIFEST, detail)]
