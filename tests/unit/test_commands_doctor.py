"""Each finding of `doctor`, provoked in a site of tiny libraries; each must be an import error or harmless for real."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field, fields
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.commands import WITHOUT_PRIVILEGES, answer, command, interpreter
from tests.support.fake_torch import CORE, DEVICE, MACHINE, NVRTC, TRY, FakeSite, complete_site
from torch_fl_boot.doctor import Diagnosis
from torch_fl_boot.relink.journal import Place
from torch_fl_boot.report import CODES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ERROR, WARNING, NOTE = "error", "warning", "note"
# In a site without libflagos and without the wheel's .pth.
USUAL = {"R040", "R050"}
# Provoked here, in test_runtime_errors_load.py (a real noexec mount), test_commands_devices.py, ..._failures.py and
# test_runtime_source_tree.py.
ELSEWHERE = {"R007", "R012", "R013", "R041", "R052", "R053"}


def change(site: FakeSite, **fields: object) -> None:
    site.manifest.update(fields)
    site.write_manifest()


def replace(site: FakeSite, name: str, **spec: Any) -> None:
    """Write another library under the same name, and a manifest that describes its size; its hash differs then."""
    entry = next(entry for entry in site.manifest["files"] if entry["name"] == name)
    path = site.library(site.bundle / name, needed=tuple(entry["needed"]), runpath=":".join(entry["runpath"]), **spec)
    entry["size"] = path.stat().st_size
    site.write_manifest()


def flip(path: Path) -> None:
    """Change the last byte, which belongs to no table that the loader reads."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def shadow_plugin(site: FakeSite) -> None:
    package = site.root / "torch_fl"
    site.library(package / "_C.abi3.so", needed=("libtorch_bindings.so",), runpath="$ORIGIN/lib")
    for folder in (package / "lib", site.root / "foreign"):
        site.library(folder / "libtorch_bindings.so")


def need_new_glibc(site: FakeSite) -> None:
    site.write_bundle({**CORE, **DEVICE, "libmagma.so": ("libc.so.6",)})
    replace(site, "libmagma.so", version_needs={"libc.so.6": ("GLIBC_9.99",)})


def add_plugin(site: FakeSite) -> None:
    (site.root / "torch_npu.py").write_text("def _autoload(): pass\n")
    metadata = site.root / "torch_npu-2.10.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.10.0\n")
    (metadata / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A damage, and the finding that it must lead to beside the usual ones; `found` must hold this text."""

    damage: Callable[[FakeSite], object]
    code: str
    severity: str = ERROR
    found: str
    where: str = ""
    environ: dict[str, str] = field(default_factory=dict)
    refused: bool = True
    # Codes of findings that the same damage causes besides.
    also: tuple[str, ...] = ()


CASES = {
    "no-build-record": Case(
        damage=lambda site: (site.root / "torch_fl/_build.json").unlink(), code="R001", found="has no _build.json"
    ),
    "manifest-gone": Case(
        damage=lambda site: (site.root / "torch_fl/_bundle.json").unlink(), code="R001", found="_bundle.json: missing"
    ),
    "other-python": Case(
        damage=lambda site: change(site, python="cp39"), code="R002", found="cp3", where=sys.executable
    ),
    "other-machine": Case(
        damage=lambda site: change(site, machine="riscv64"), code="R003", found=MACHINE, also=("R010",)
    ),
    "no-torch": Case(
        damage=lambda site: shutil.rmtree(site.root / "torch"), code="R004", found="no torch is installed"
    ),
    "other-torch": Case(damage=lambda site: change(site, torch="2.11.0"), code="R005", found="torch 2.10.0+cpu"),
    "strategy": Case(damage=lambda _: None, code="R006", found="FLAGOS_CORE='magic'", environ={"FLAGOS_CORE": "magic"}),
    "file-missing": Case(
        damage=lambda site: (site.bundle / "libshm.so").unlink(),
        code="R010",
        found="libshm.so: missing",
        where="{site}/torch_fl/lib_fake/libshm.so",
    ),
    "byte-changed": Case(
        damage=lambda site: flip(site.bundle / "libshm.so"),
        code="R011",
        found="",
        where="{site}/torch_fl/lib_fake/libshm.so",
        refused=False,
    ),
    "driver-missing": Case(
        damage=lambda site: (site.sdk / "libdriver.so.5").unlink(),
        code="R020",
        found="nowhere; needed by libc10_cuda.so",
        where="libdriver.so.5",
    ),
    "driver-stack-absent": Case(
        damage=lambda site: shutil.rmtree(site.sdk),
        code="R020",
        severity=WARNING,
        found="nowhere; needed by libc10_cuda.so",
        where="libdriver.so.5",
        refused=False,
    ),
    "driver-of-an-optional-library-missing": Case(
        damage=lambda site: (site.sdk / "libdrivercore.so.1").unlink(),
        code="R020",
        severity=NOTE,
        found="nowhere; libcaffe2_nvrtc.so, which needs it, is left out",
        where="libdrivercore.so.1",
        refused=False,
    ),
    "third-party-missing": Case(
        damage=lambda site: site.write_bundle({**CORE, **DEVICE, **NVRTC, "libmagma.so": ("libmkl.so.1",)}),
        code="R021",
        found="nowhere; needed by libmagma.so",
        where="libmkl.so.1",
    ),
    "driver-is-no-library": Case(
        damage=lambda site: (site.sdk / "libdriver.so.5").write_text("#!/bin/sh\n" * 9),
        code="R022",
        found="not a 64-bit little-endian ELF file; needed by libc10_cuda.so",
        where="{site}/../sdk/lib/libdriver.so.5",
    ),
    "plugins-library-shadowed": Case(
        damage=shadow_plugin,
        code="R023",
        found="{site}/foreign/libtorch_bindings.so",
        environ={"LD_LIBRARY_PATH": "{site}/foreign"},
        refused=False,
    ),
    "core-preloaded": Case(
        damage=lambda site: site.library(site.root / "foreign/libc10.so"),
        code="R024",
        found="{site}/foreign/libc10.so",
        environ={"LD_PRELOAD": "{site}/foreign/libc10.so"},
    ),
    "core-on-library-path": Case(
        damage=lambda site: site.library(site.root / "foreign/libc10.so"),
        code="R025",
        severity=WARNING,
        found="libc10.so",
        where="{site}/foreign",
        environ={"LD_LIBRARY_PATH": "{site}/foreign"},
        refused=False,
    ),
    "symbols-missing": Case(
        damage=lambda site: replace(site, "libc10_cuda.so", undefined=("drvOne", "drvTwo"), weak=("drvMaybe",)),
        code="R030",
        found="none of these:\ndrvOne, needed by libc10_cuda.so\ndrvTwo, needed by libc10_cuda.so",
        also=("R011",),
    ),
    "versions-missing": Case(
        damage=need_new_glibc,
        code="R031",
        found="none of these:\nversion GLIBC_9.99 in /",
        also=("R011",),
    ),
    "no-device-runtime": Case(
        damage=lambda _: None, code="R040", severity=WARNING, found="libflagos.so", refused=False
    ),
    "hook-absent": Case(damage=lambda _: None, code="R050", severity=NOTE, found="absent", refused=False),
    "other-plugin": Case(
        damage=add_plugin, code="R051", severity=WARNING, found="torch_npu (torch_npu:_autoload)", refused=False
    ),
    "relink-unfinished": Case(
        damage=lambda site: Place(torch=site.root / "torch").stage.mkdir(),
        code="R060",
        severity=WARNING,
        found="is left from a process that was killed",
        where="{site}/torch/lib",
        refused=False,
    ),
    "second-openmp": Case(
        damage=lambda site: site.library(site.root / "foreign/libgomp.so.1"),
        code="R070",
        severity=WARNING,
        found="{site}/foreign/libgomp.so.1, {site}/torch/lib/libgomp.so.1",
        environ={"LD_PRELOAD": "{site}/foreign/libgomp.so.1"},
        refused=False,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_finding_must_be_told_with_its_facts(tmp_path, case):
    site = complete_site(tmp_path)
    case.damage(site)
    environ = {key: value.replace("{site}", str(site.root)) for key, value in case.environ.items()}
    found = answer(site, "doctor", environ=environ)
    mine = [item for item in found["findings"] if item["code"] == case.code and item["severity"] == case.severity]
    assert [item["severity"] for item in mine] == [case.severity], found["findings"]
    assert case.found.replace("{site}", str(site.root)) in mine[0]["found"]
    if case.where:
        assert os.path.normpath(mine[0]["where"]) == os.path.normpath(case.where.replace("{site}", str(site.root)))
    assert all(mine[0][key] for key in ("where", "expected", "hint"))
    others = {item["code"] for item in found["findings"]} - {case.code, *USUAL}
    assert others == set(case.also)
    assert found["ok"] is (case.severity != ERROR)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_error_of_the_doctor_must_be_one_of_the_import_and_the_reverse(tmp_path, case):
    site = complete_site(tmp_path)
    case.damage(site)
    environ = {key: value.replace("{site}", str(site.root)) for key, value in case.environ.items()}
    done = site.run(TRY, environ=environ)
    assert (done.stdout != "imported\n") is case.refused, done.stdout


def test_every_code_must_be_provoked():
    assert {case.code for case in CASES.values()} | ELSEWHERE == set(CODES)


def test_healthy_site_must_have_no_error_and_exit_0(tmp_path):
    done = command(complete_site(tmp_path), "doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("0 errors, 2 other findings\n")


def test_errors_must_exit_1_and_be_printed_with_the_next_step(tmp_path):
    site = complete_site(tmp_path)
    (site.sdk / "libdriver.so.5").unlink()
    done = command(site, "doctor", "--quick")
    assert (done.returncode, done.stderr) == (1, "")
    assert (
        "error R020 libdriver.so.5: a library of the driver stack is found nowhere\n"
        "  found:    nowhere; needed by libc10_cuda.so\n"
        f"  expected: in {site.sdk}, the directories of ld.so.conf\n"
        "  hint:     install the fake driver and SDK, or source the SDK's environment script\n"
    ) in done.stdout
    assert done.stdout.endswith("1 errors, 2 other findings; sha256 not checked\n")


def test_quick_look_must_read_no_bytes_of_the_bundle(tmp_path):
    site = complete_site(tmp_path)
    flip(site.bundle / "libshm.so")
    found = answer(site, "doctor", "--quick")
    assert (found["ok"], found["hashed"]) == (True, False)


def test_file_that_may_not_be_read_must_be_an_error(tmp_path):
    site = complete_site(tmp_path)
    (site.bundle / "libshm.so").chmod(0)
    program = f"{WITHOUT_PRIVILEGES}\nfrom torch_fl_boot.cli import main\nprint(main(['doctor', '--quick']))"
    done = interpreter(site, "-c", program)
    assert f"error R012 {site.bundle}/libshm.so: " in done.stdout
    assert f"hint:     give user {os.getuid()} the right to read {site.bundle}/libshm.so" in done.stdout
    assert done.stdout.endswith("\n1\n")


def test_every_need_of_the_bundle_must_be_told_with_its_place_and_rule(tmp_path):
    site = complete_site(tmp_path)
    found = answer(site, "doctor")
    needs = {(PurePath(item["library"]).name, item["soname"]): item for item in found["needs"]}
    described = {(name, need) for name, needed in {**CORE, **DEVICE, **NVRTC}.items() for need in needed}
    assert needs.keys() == described
    assert needs["libc10_cuda.so", "libdriver.so.5"]["path"] == str(site.sdk / "libdriver.so.5")
    assert needs["libc10_cuda.so", "libdriver.so.5"]["rule"] == "DT_RUNPATH"
    assert needs["libtorch_cpu.so", "libgomp.so.1"]["path"] == str(site.torch_lib / "libgomp.so.1")
    assert needs["libtorch_cpu.so", "libgomp.so.1"]["rule"] == "already loaded"
    printed = command(site, "doctor", "--quick", "--libraries").stdout
    assert f"libc10_cuda.so needs libdriver.so.5: {site.sdk}/libdriver.so.5 (DT_RUNPATH)\n" in printed


def test_json_must_hold_schema_command_and_the_diagnosis(tmp_path):
    found = answer(complete_site(tmp_path), "doctor")
    assert found.keys() == {"schema", "command", *(item.name for item in fields(Diagnosis))}
    assert (found["schema"], found["command"]) == (1, "doctor")
