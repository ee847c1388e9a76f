"""The simulated loader against the real one, and the symbol reader against readelf."""

from __future__ import annotations

import ctypes.util
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.tiny_elf import ElfSpec
from torch_fl_boot.elf import NotElfError
from torch_fl_boot.maps import mapped_libraries
from torch_fl_boot.resolve import BY_LIBRARY_PATH, BY_RPATH, BY_RUNPATH, LOADED, NOWHERE, Process, running_program
from torch_fl_boot.resolve_elf import Definition, Symbol, opened, read_library
from torch_fl_boot.resolve_settings import read_cache, settings_of, split_path, split_preload
from torch_fl_boot.resolve_symbols import _answers, missing_symbols

if TYPE_CHECKING:
    from collections.abc import Callable

MACHINE = platform.machine()
OTHER = "aarch64" if MACHINE == "x86_64" else "x86_64"
OPEN = """
import ctypes, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path)
for line in open("/proc/self/maps"):
    if ".so" in line:
        print(line.split()[-1])
"""


def write(folder: Path, name: str, *, needed: tuple[str, ...] = (), **spec: Any) -> Path:
    return ElfSpec(**{"soname": name, "machine": MACHINE, **spec}, needed=needed).write(folder / name)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Libraries to lay out, what to open, and the rule and place by which liba.so's need `libx.so` is found."""

    build: Callable[[Path], object]
    open: tuple[str, ...] = ("a/liba.so",)
    environ: dict[str, str] = field(default_factory=dict)
    rule: str
    found: str | None


def level() -> str:
    """The best glibc-hwcaps subdirectory of this processor, or a name that none has."""
    return next(iter(settings_of({}).hwcaps), "none")


def hwcaps(root: Path) -> None:
    write(root / "a", "liba.so", needed=("libx.so",), runpath="$ORIGIN/../x")
    write(root / "x" / "glibc-hwcaps" / level(), "libx.so")
    write(root / "x", "libx.so")


def two(root: Path, **spec: Any) -> None:
    """Copies of libx.so in x and y, needed by liba.so."""
    write(root / "a", "liba.so", needed=("libx.so",), **spec)
    write(root / "x", "libx.so")
    write(root / "y", "libx.so")


def chain(root: Path, *, below: str | None = None, **spec: Any) -> None:
    """liba.so has the paths, and needs libb.so, which needs libx.so and has no path but the RUNPATH `below`."""
    write(root / "a", "liba.so", needed=("libb.so",), **spec)
    write(root / "a", "libb.so", needed=("libx.so",), runpath=below)
    write(root / "x", "libx.so")


def wrong_first(root: Path, **spec: Any) -> None:
    two(root, runpath="$ORIGIN/../x:$ORIGIN/../y")
    write(root / "x", "libx.so", **spec)


def linked(root: Path) -> None:
    two(root, runpath="$ORIGIN/../x")
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/er/liba.so").symlink_to(root / "a/liba.so")
    write(root / "deep/x", "libx.so")


SCENES = {
    "runpath": Scene(build=lambda root: two(root, runpath="$ORIGIN/../x"), rule=BY_RUNPATH, found="x/libx.so"),
    "rpath": Scene(build=lambda root: two(root, rpath="${ORIGIN}/../x"), rule=BY_RPATH, found="x/libx.so"),
    "library-path-before-runpath": Scene(
        build=lambda root: two(root, runpath="$ORIGIN/../x"),
        environ={"LD_LIBRARY_PATH": "{root}/none;{root}/y"},
        rule=BY_LIBRARY_PATH,
        found="y/libx.so",
    ),
    "rpath-before-library-path": Scene(
        build=lambda root: two(root, rpath="$ORIGIN/../x"),
        environ={"LD_LIBRARY_PATH": "{root}/y"},
        rule=BY_RPATH,
        found="x/libx.so",
    ),
    "rpath-beside-runpath-is-ignored": Scene(
        build=lambda root: two(root, rpath="$ORIGIN/../x", runpath="$ORIGIN/../y"), rule=BY_RUNPATH, found="y/libx.so"
    ),
    "rpath-is-inherited": Scene(
        build=lambda root: chain(root, rpath="$ORIGIN:$ORIGIN/../x"), rule=BY_RPATH, found="x/libx.so"
    ),
    "runpath-is-not-inherited": Scene(
        build=lambda root: chain(root, runpath="$ORIGIN:$ORIGIN/../x"), rule=NOWHERE, found=None
    ),
    "rpath-is-not-inherited-from-one-with-a-runpath": Scene(
        build=lambda root: chain(root, rpath="$ORIGIN/../x", runpath="$ORIGIN"), rule=NOWHERE, found=None
    ),
    "rpath-is-not-inherited-by-one-with-a-runpath": Scene(
        build=lambda root: chain(root, rpath="$ORIGIN:$ORIGIN/../x", below="$ORIGIN"), rule=NOWHERE, found=None
    ),
    "loaded-by-soname": Scene(
        build=lambda root: two(root, runpath="$ORIGIN/../x"),
        open=("y/libx.so", "a/liba.so"),
        rule=LOADED,
        found="y/libx.so",
    ),
    "preloaded": Scene(
        build=lambda root: two(root, runpath="$ORIGIN/../x"),
        environ={"LD_PRELOAD": "{root}/y/libx.so"},
        rule=LOADED,
        found="y/libx.so",
    ),
    "other-machine-is-passed-over": Scene(
        build=lambda root: wrong_first(root, machine=OTHER), rule=BY_RUNPATH, found="y/libx.so"
    ),
    "origin-is-the-links-folder": Scene(
        build=linked, open=("deep/er/liba.so",), rule=BY_RUNPATH, found="deep/x/libx.so"
    ),
    "best-hardware-first": Scene(build=hwcaps, rule=BY_RUNPATH, found="x/glibc-hwcaps/{level}/libx.so"),
    "name-with-a-slash": Scene(
        build=lambda root: [
            write(root / "a", "liba.so", needed=(f"{root}/y/libx.so",)),
            write(root / "x", "libx.so"),
            write(root / "y", "libx.so"),
        ],
        rule="its path",
        found="y/libx.so",
    ),
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_simulation_must_find_what_the_loader_finds(tmp_path, scene):
    scene.build(tmp_path)
    environ = {key: value.replace("{root}", str(tmp_path)) for key, value in scene.environ.items()}
    paths = [tmp_path / name for name in scene.open]
    process = Process(settings_of(environ))
    process.start(running_program())
    for path in paths:
        process.open([path])
    said = {item.soname.rpartition("/")[2]: item for item in process.resolutions if item.user in paths or item.user}
    found = scene.found and str(tmp_path / scene.found.replace("{level}", level()))
    if level() != "none" or scene.build is not hwcaps:
        last = said["libx.so"]
        assert (last.rule, last.path and os.path.realpath(last.path)) == (scene.rule, found)
    done = subprocess.run(
        [sys.executable, "-c", OPEN, *paths], env=environ, capture_output=True, text=True, check=False
    )
    if scene.found is None:
        assert "libx.so: cannot open shared object file" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    real = {path for path in done.stdout.split() if path.startswith(str(tmp_path))}
    assert real == {os.path.realpath(item.path) for item in process.loaded if item.path.is_relative_to(tmp_path)}


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\nexit 1\n" * 4], ids=["empty", "script"])
def test_file_that_is_no_library_must_end_the_search_as_it_does_for_the_loader(tmp_path, content):
    two(tmp_path, runpath="$ORIGIN/../x:$ORIGIN/../y")
    (tmp_path / "x/libx.so").write_bytes(content)
    process = Process(settings_of({}))
    process.open([tmp_path / "a/liba.so"])
    last = process.resolutions[-1]
    assert (last.path, bool(last.problem)) == (tmp_path / "a/../x/libx.so", True)
    done = subprocess.run(
        [sys.executable, "-c", OPEN, tmp_path / "a/liba.so"], env={}, capture_output=True, text=True, check=False
    )
    assert f"{tmp_path}/a/../x/libx.so" in done.stderr


def test_this_process_must_be_simulated_as_it_is():
    process = Process(settings_of(dict(os.environ)))
    simulated = {os.path.realpath(item.path) for item in process.start(running_program())}
    mapped = {path for paths in mapped_libraries().values() for path in paths}
    assert simulated - {os.path.realpath(running_program())} <= mapped


def test_cache_must_hold_what_ldconfig_prints():
    tool = shutil.which("ldconfig", path=f"{os.environ['PATH']}:/sbin:/usr/sbin")
    if tool is None or not Path("/etc/ld.so.cache").exists():
        pytest.skip("this machine has no ldconfig or no cache")
    printed = subprocess.run([tool, "-p"], capture_output=True, text=True, check=True).stdout
    kind = {"x86_64": "libc6,x86-64", "aarch64": "libc6,AArch64"}[MACHINE]
    expected: dict[str, list[str]] = {}
    for line in printed.splitlines():
        if f"({kind})" in line:
            expected.setdefault(line.split()[0], []).append(line.partition(" => ")[2])
    assert expected
    found = read_cache(Path("/etc/ld.so.cache"), MACHINE)
    assert {name: sorted(paths) for name, paths in expected.items()} == {
        name: sorted(paths) for name, paths in found.items()
    }


@pytest.mark.parametrize("content", [b"", b"ld.so-1.7.0" + bytes(100)], ids=["empty", "old-format-alone"])
def test_cache_of_another_format_must_count_as_empty(tmp_path, content):
    (tmp_path / "cache").write_bytes(content)
    assert read_cache(tmp_path / "cache", MACHINE) == {}
    assert read_cache(tmp_path / "absent", MACHINE) == {}


def test_variables_must_be_split_as_the_loader_splits_them():
    assert split_path("/a:;/b") == ("/a", "", "/b")
    assert split_path("") == ()
    assert split_preload("/a.so  b.so:c.so:") == ("/a.so", "b.so", "c.so")


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
