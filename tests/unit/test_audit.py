"""Each audit code is provoked by a wheel with exactly one fault, and a clean wheel gives none."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from bundle.audit import CHECKS, audit, build_path_pattern, codes_markdown
from bundle.backends import BACKENDS, CUDA, DCU, METAX, PPU
from bundle.errors import InputNotFoundError, MalformedError
from bundle.sbom import sbom_path
from tests.support.tiny_elf import ElfSpec
from tests.support.wheels import RawEntry, WheelSpec, entries, metadata, wheel, write_raw

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "audit-codes.md"
LIB = "torch_fl/lib/libtorch_fl.so"
FLAGOS = "torch_fl/lib/libflagos.so"
SHM = "torch_fl/lib_maca/libshm.so"
C10 = "torch_fl/lib_maca/libc10.so"
CPU = "torch_fl/lib_maca/libtorch_cpu.so"
MANIFEST = "torch_fl/_bundle.json"
INFO = "torch_fl-0.1.0+metax.dist-info"
RECORD = f"{INFO}/RECORD"
NAME = "torch_fl-0.1.0+metax-cp312-cp312-linux_x86_64.whl"


def found(path, **options):
    return [(finding.code, finding.where, finding.detail) for finding in audit(path, **options).findings]


def raw_audit(tmp_path, change):
    """Audit a clean wheel whose zip entries were changed one by one; `change` returns entries for an entry."""
    clean = WheelSpec().write(tmp_path)
    raw = [result for entry in entries(clean) for result in change(entry)]
    return found(write_raw(clean, raw))


def changed_elf(path, spec=None, **changes):
    """Return a clean spec in which one library is another; the manifest follows."""
    spec = spec or WheelSpec()
    spec.elves[path] = replace(spec.elves[path], **changes)
    return spec


def changed_members(spec, **changes):
    """Return the members of a wheel with JSON keys of its manifest changed afterwards, hashes and SBOM left alone."""
    members = spec.members()
    manifest = json.loads(members[MANIFEST])
    members[MANIFEST] = json.dumps({**manifest, **changes}).encode()
    return members


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


# The wheel as a file


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


# Names and metadata


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


# Identity and bundle


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


# Shared objects


def test_a_library_that_is_no_elf_file_must_be_found(tmp_path):
    spec = WheelSpec()
    members = {**spec.members(), "torch_fl/other/libscript.so": b"INPUT(libc10.so)"}
    assert found(spec.write(tmp_path, members)) == [("B201", "torch_fl/other/libscript.so", "not an ELF file")]


def test_a_library_of_another_machine_must_be_found(tmp_path):
    spec = changed_elf(SHM, machine="aarch64", align=0x10000)
    assert found(spec.write(tmp_path)) == [("B202", SHM, "is for aarch64, the wheel is for x86_64")]


def test_b32_dt_rpath_must_be_found(tmp_path):
    spec = changed_elf(SHM, rpath="$ORIGIN")
    detail = "DT_RPATH $ORIGIN, which overrides LD_LIBRARY_PATH and is inherited"
    assert found(spec.write(tmp_path)) == [("B203", SHM, detail)]


@pytest.mark.parametrize("path", [pytest.param(LIB, id="plugin"), pytest.param(SHM, id="bundle")])
@pytest.mark.parametrize(
    ("entry", "code", "detail"),
    [
        pytest.param("/usr/lib/builder", "B204", "is no driver directory of the target", id="b18-build-directory"),
        pytest.param("/opt/maca/lib/stubs", "B204", "is no driver directory of the target", id="b18-stubs"),
        pytest.param("torch/lib", "B204", "is no driver directory of the target", id="relative"),
        pytest.param("$ORIGIN/../../../x", "B204", "leaves site-packages", id="b18-leaves"),
        pytest.param("", "B205", "an empty entry, which means the current directory", id="b18-empty"),
        pytest.param("$ORIGIN}", "B205", "entry '$ORIGIN}'", id="b33-brace"),
        pytest.param("\\$ORIGIN", "B205", "entry '\\\\$ORIGIN'", id="b33-backslash"),
        pytest.param("$ORIGINAL/lib", "B205", "entry '$ORIGINAL/lib'", id="b33-longer-name"),
        pytest.param("${ORIGIN}/lib", "B205", "entry '${ORIGIN}/lib'", id="b33-braces"),
    ],
)
def test_a_runpath_entry_that_is_not_the_targets_must_be_found(tmp_path, path, entry, code, detail):
    spec = WheelSpec()
    spec = changed_elf(path, spec, runpath=f"{spec.elves[path].runpath}:{entry}")
    ((said_code, where, said),) = found(spec.write(tmp_path))
    assert (said_code, where) == (code, path)
    assert detail in said


def test_a_runpath_must_reach_the_bundle_ahead_of_the_drivers_directories(tmp_path):
    behind = ":".join(reversed((WheelSpec().elves[LIB].runpath or "").split(":")))
    detail = "needs libc10.so, but no $ORIGIN entry ahead of the driver's leads to torch_fl/lib_maca"
    for runpath in ("$ORIGIN", behind):
        broken = changed_elf(LIB, WheelSpec(), runpath=runpath, needed=("libc10.so", "libc.so.6"))
        assert found(broken.write(tmp_path)) == [("B206", LIB, detail)]


def test_a_needed_library_that_nobody_provides_must_be_found(tmp_path):
    spec = changed_elf(SHM, needed=("libgone.so.1", "libc10.so"))
    detail = "needs libgone.so.1, which neither the wheel, stock torch, the driver nor the system provides"
    assert found(spec.write(tmp_path)) == [("B207", SHM, detail)]


def test_a_core_library_must_not_count_as_stocks_where_the_vendors_is_bundled(tmp_path):
    spec = changed_elf(SHM, needed=("libtorch_python.so", "libc10.so"))
    assert found(spec.write(tmp_path)) == []
    spec = WheelSpec(backend=PPU, manifest={"core": "stock"})
    assert found(spec.write(tmp_path)) == []


@pytest.mark.parametrize("soname", [pytest.param(None, id="missing"), pytest.param("libc10-1a2b.so", id="mangled")])
def test_a_core_soname_that_is_not_the_files_name_must_be_found(tmp_path, soname):
    spec = changed_elf(C10, soname=soname)
    detail = f"DT_SONAME {soname or '(none)'}, expected libc10.so: stock torch finds it by soname only"
    assert found(spec.write(tmp_path)) == [("B208", C10, detail)]


def test_b36_two_libraries_of_one_soname_must_be_found(tmp_path):
    spec = WheelSpec(backend=DCU)
    mpi = "torch_fl/lib_dcu/libmpi-3f.so.40"
    spec.elves["torch_fl/lib_dcu/libmpi.so"] = spec.elves[mpi]
    detail = f"has DT_SONAME libmpi-3f.so.40, as has {mpi}: only the first one opened would be used"
    assert found(spec.write(tmp_path)) == [("B209", "torch_fl/lib_dcu/libmpi.so", detail)]


@pytest.mark.parametrize("name", ["libstdc++.so.6", "libgcc_s.so.1", "libc.so.6"])
def test_b16_a_bundled_system_runtime_must_be_found(tmp_path, name):
    spec = WheelSpec(backend=DCU)
    path = f"torch_fl/lib_dcu/{name}"
    spec.elves[path] = ElfSpec(soname=name, runpath="$ORIGIN")
    # Its users reach the folder through $ORIGIN, but those of torch_fl/lib do not reach libc.so.6 in another way.
    codes = [(code, where) for code, where, _ in found(spec.write(tmp_path)) if code != "B206"]
    assert codes == [("B210", path)]


def test_an_executable_stack_must_be_found(tmp_path):
    spec = changed_elf(SHM, executable_stack=True)
    detail = "asks for an executable stack, which glibc 2.41 and hardened kernels refuse at dlopen"
    assert found(spec.write(tmp_path)) == [("B211", SHM, detail)]


def test_b30_4k_alignment_on_aarch64_must_be_found(tmp_path):
    spec = changed_elf(SHM, WheelSpec(machine="aarch64"), align=0x1000)
    detail = "PT_LOAD aligned to 0x1000, expected at least 0x10000 on aarch64"
    assert found(spec.write(tmp_path)) == [("B212", SHM, detail)]


def test_b16_the_plugin_must_not_need_newer_symbols_than_declared(tmp_path):
    needs = {"libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.38"), "libstdc++.so.6": ("GLIBCXX_3.4.30", "CXXABI_1.3.13")}
    spec = changed_elf(FLAGOS, needed=("libc.so.6", "libstdc++.so.6"), version_needs=needs)
    detail = "needs GLIBC_2.38, the declared floor is GLIBC_2.36"
    report = audit(spec.write(tmp_path))
    assert [str(finding) for finding in report.findings] == [f"B213 {FLAGOS}: {detail}"]


def test_b16_versions_must_compare_by_number(tmp_path):
    spec = changed_elf(FLAGOS, version_needs={"libc.so.6": ("GLIBC_2.4",)})
    spec = changed_elf(LIB, spec, version_needs={"libc.so.6": ("GLIBC_2.34",)})
    report = audit(spec.write(tmp_path))
    assert report.findings == ()
    assert dict(report.facts)["newest GLIBC needed by the plugin"] == "2.34"


def test_b16_newer_symbols_of_the_bundle_must_be_reported_and_not_found(tmp_path):
    needs = {"libc.so.6": ("GLIBC_2.4", "GLIBC_2.38"), "libstdc++.so.6": ("GLIBCXX_3.4.9", "GLIBCXX_3.4.32")}
    spec = changed_elf(SHM, needed=("libc10.so", "libc.so.6", "libstdc++.so.6"), version_needs=needs)
    report = audit(spec.write(tmp_path))
    assert report.findings == ()
    facts = dict(report.facts)
    assert facts["newest GLIBC needed by the bundle"] == "2.38"
    assert facts["newest GLIBCXX needed by the bundle"] == "3.4.32"
    assert facts["newest CXXABI needed by the bundle"] == "none"


@pytest.mark.parametrize(
    "text",
    ["/home/me/torch_fl/csrc/a.cpp", "/root/a.cpp", "/mnt/b/a.h", "/opt/hostedtoolcache/x/y.h", "/srv/exact/a.h"],
)
def test_paths_of_the_build_machine_in_the_plugin_must_be_found(tmp_path, text):
    spec = changed_elf(FLAGOS, payload=b"\0" + text.encode() + b"\0")
    expected = [("B214", FLAGOS, f"names the build machine's {text}")]
    assert found(spec.write(tmp_path), forbidden=("/srv/exact",)) == expected


def test_paths_of_the_build_machine_in_a_record_must_be_found(tmp_path):
    spec = WheelSpec(manifest={"vendor_torch": "2.10.0 of /home/me/torch"})
    detail = "names the build machine's /home/me/torch"
    assert found(spec.write(tmp_path)) == [("B214", where, detail) for where in (sbom_path(INFO), MANIFEST)]


def test_paths_in_vendor_libraries_must_not_be_found(tmp_path):
    assert found(changed_elf(SHM, payload=b"/home/vendor/a.cpp").write(tmp_path)) == []


@pytest.mark.parametrize(
    "text",
    ["third_party/build/x.h", "./tmp/x.h", "/proc/self/maps", "/opt/maca/lib", "$ORIGIN/../root/x", "/home", "/home/"],
)
def test_paths_that_name_no_build_machine_must_not_match(text):
    assert build_path_pattern(()).search(text.encode()) is None


# The report


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
