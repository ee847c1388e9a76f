"""The symbol reader against readelf, and which definitions answer to which references."""

from __future__ import annotations

import ctypes.util
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_elf import ElfSpec
from torch_fl_boot.elf import NotElfError
from torch_fl_boot.resolve import Process
from torch_fl_boot.resolve_elf import Definition, Symbol, opened, read_library
from torch_fl_boot.resolve_settings import settings_of
from torch_fl_boot.resolve_symbols import _answers, missing_symbols


def write(folder: Path, name: str, *, needed: tuple[str, ...] = (), **spec: Any) -> Path:
    return ElfSpec(**{"soname": name, "machine": platform.machine(), **spec}, needed=needed).write(folder / name)


def read_everything(path: Path) -> None:
    with opened(path) as tables:
        tables.library()
        tables.undefined()


class Everything:
    def __contains__(self, name: object) -> bool:
        return True


def system_library(stem: str) -> Path:
    name = ctypes.util.find_library(stem)
    assert name
    return Path(settings_of({}).cache[name][0])


@pytest.mark.parametrize("stem", ["c", "stdc++"])
def test_symbols_must_be_those_that_readelf_prints(stem):
    tool = shutil.which("readelf")
    if tool is None:
        pytest.skip("this machine has no readelf to compare with")
    path = system_library(stem)
    printed = subprocess.run([tool, "--dyn-syms", "-W", path], capture_output=True, text=True, check=True).stdout
    defined, undefined, count = set(), set(), 0
    for line in printed.splitlines():
        fields = line.split()
        if len(fields) < 7 or not fields[0].rstrip(":").isdigit():
            continue
        count += 1
        if len(fields) < 8:
            continue
        bind, visibility, section, name = fields[4:8]
        if section == "UND":
            undefined |= {name} if bind == "GLOBAL" else set()
        elif bind in {"GLOBAL", "WEAK", "UNIQUE"} and visibility in {"DEFAULT", "PROTECTED"}:
            value, absolute = int(fields[1], 16), section == "ABS"
            is_version = absolute and "@" not in name
            defined |= {name.replace("@@", "@")} if (value or fields[3] == "TLS") and not is_version else set()
    with opened(path) as tables:
        assert tables.symbol_count() == tables.hashed_count() == count
        assert {str(symbol) for symbol in tables.undefined()} == undefined
        assert {
            item.name.decode() + (f"@{item.version.decode()}" if item.version else "")
            for item in tables.definitions(Everything())
            # The symbol that stands for a version is named like it, and printed once.
            if item.name != item.version
        } == defined


@pytest.mark.parametrize(
    ("definition", "reference", "versioned", "found"),
    [
        pytest.param((b"V1", False), b"V1", True, True, id="same"),
        pytest.param((b"V2", False), b"V1", True, False, id="another"),
        pytest.param((b"V1", True), b"V1", True, True, id="old-version-by-name"),
        pytest.param((None, False), b"V1", True, False, id="unversioned-beside-versions"),
        pytest.param((None, False), b"V1", False, True, id="library-without-versions"),
        pytest.param((b"V1", False), None, True, True, id="default-version"),
        pytest.param((b"V1", True), None, True, False, id="hidden-version"),
    ],
)
def test_definition_must_answer_to_a_reference_as_the_loader_decides(definition, reference, versioned, found):
    version, hidden = definition
    assert _answers(Definition(b"f", version, hidden), Symbol(b"f", reference), versioned) is found


def test_symbols_of_a_library_that_is_left_out_must_be_missing_with_their_home():
    process = Process(settings_of({}))
    scope = process.open([system_library("stdc++")])
    assert missing_symbols(scope, scope) == ()
    user = scope[0]
    without = [item for item in scope if item.library.soname != "libm.so.6"]
    missing = missing_symbols([user], without)
    assert missing
    assert {item.home for item in missing} == {"libm.so.6"}
    assert {item.needed_by for item in missing} == {(user.path,)}
    assert all("@GLIBC_" in item.name for item in missing)


def test_library_that_defines_versions_must_say_which():
    library = read_library(system_library("c"))
    assert {"GLIBC_2.17"} <= library.version_definitions
    assert library.soname == "libc.so.6"


def test_paths_and_versions_of_a_library_must_be_read(tmp_path):
    spec: dict[str, Any] = {"rpath": "/r", "version_needs": {"libc.so.6": ("GLIBC_2.17", "GLIBC_2.34")}}
    library = read_library(write(tmp_path, "liba.so", needed=("libc.so.6",), **spec))
    assert (library.rpath, library.runpath, library.has_runpath) == (("/r",), (), False)
    assert [(need.soname, need.version, need.weak) for need in library.version_needs] == [
        ("libc.so.6", "GLIBC_2.17", False),
        ("libc.so.6", "GLIBC_2.34", False),
    ]


@pytest.mark.parametrize("cut", [0, 10, 63, 200, 400])
def test_file_cut_short_must_be_refused_or_read_without_its_tail(tmp_path, cut):
    path = write(tmp_path, "liba.so", needed=("libc.so.6",), undefined=("x",))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(NotElfError):
        read_everything(path)
