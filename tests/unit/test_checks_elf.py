"""Shared objects: each code is provoked by a wheel with exactly one fault."""

from __future__ import annotations

import pytest

from bundle.audit import audit, build_path_pattern
from bundle.backends import DCU, PPU
from bundle.sbom import sbom_path
from tests.support.audits import (
    C10,
    FLAGOS,
    INFO,
    LIB,
    MANIFEST,
    SHM,
    changed_elf,
    found,
)
from tests.support.tiny_elf import ElfSpec
from tests.support.wheels import WheelSpec


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
    [
        *("/home/me/torch_fl/csrc/a.cpp", "/root/a.cpp", "/mnt/b/a.h", "/opt/hostedtoolcache/x/y.h", "/srv/exact/a.h"),
        *("../../envs/torch/a.h", "../../../../torch_fl/csrc/a.cpp"),
    ],
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
