"""The simulated loader against the real one, and the symbol reader against readelf."""

from __future__ import annotations

import os
import platform
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.commands import answer
from tests.support.fake_torch import complete_site
from tests.support.tiny_elf import ElfSpec
from torch_fl_boot.maps import mapped_libraries
from torch_fl_boot.resolve import BY_LIBRARY_PATH, BY_RPATH, BY_RUNPATH, LOADED, NOWHERE, Process, running_program
from torch_fl_boot.resolve_settings import read_cache, settings_of, split_path, split_preload

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


def test_origin_in_the_library_path_must_be_the_programs_folder(tmp_path, monkeypatch):
    deep = tmp_path.joinpath(*"0123456789")  # from where as many steps up as from the program do not lead to the root
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    user = write(tmp_path / "a", "liba.so", needed=("libx.so",))
    write(tmp_path / "x", "libx.so")
    program = running_program()
    environ = {"LD_LIBRARY_PATH": f"$ORIGIN/{os.path.relpath(tmp_path / 'x', program.parent)}"}
    process = Process(settings_of(environ))
    process.start(program)
    process.open([user])
    assert [item.rule for item in process.resolutions if item.soname == "libx.so"] == ["LD_LIBRARY_PATH"]
    done = subprocess.run([program, "-c", OPEN, user], env=environ, capture_output=True, text=True, check=False)
    assert f"{tmp_path}/x/libx.so" in done.stdout, done.stderr


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


def test_cache_that_was_cut_short_must_count_as_empty(tmp_path):
    """It explains failures of others, and must not add one."""
    header = struct.pack("<20sIIBxxxI12x", b"glibc-ld.so.cache1.1", 1, 0, 2, 0)
    flags = {"x86_64": 0x0303, "aarch64": 0x0A03}[MACHINE]
    entry = struct.pack("<iIIIQ", flags, len(header) + 24, len(header) + 24, 0, 0)
    for content in (header, header + entry, header + entry + b"libx.so"):
        (tmp_path / "cache").write_bytes(content)
        assert read_cache(tmp_path / "cache", MACHINE) == {}


@pytest.mark.parametrize("content", [b"", b"ld.so-1.7.0" + bytes(100)], ids=["empty", "old-format-alone"])
def test_cache_of_another_format_must_count_as_empty(tmp_path, content):
    (tmp_path / "cache").write_bytes(content)
    assert read_cache(tmp_path / "cache", MACHINE) == {}
    assert read_cache(tmp_path / "absent", MACHINE) == {}


def test_variables_must_be_split_as_the_loader_splits_them():
    assert split_path("/a:;/b") == ("/a", "", "/b")
    assert split_path("") == ()
    assert split_preload("/a.so  b.so:c.so:") == ("/a.so", "b.so", "c.so")


@pytest.mark.parametrize("core", ["vendor", "stock"])
def test_simulated_load_must_be_what_the_import_maps(tmp_path, core):
    site = complete_site(tmp_path, core=core)
    found = answer(site, "doctor")
    simulated = {os.path.realpath(item["path"]) for item in found["needs"] if item["path"]}
    report = "import torch_fl\nfor paths in torch_fl.mapped_libraries().values():\n    print(*paths, sep='\\n')"
    mapped = set(site.run(report).stdout.split())
    assert simulated <= mapped
