"""Setting RUNPATH with the real patchelf, on real files."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bundle.elf import read_elf, read_symbols
from bundle.errors import RefusedError, ToolError
from bundle.patch import OLDEST, Edit, apply_edit, check_patchelf, find_patchelf

LONG = ("$ORIGIN", "$ORIGIN/../../torch_fl/lib_dcu", *(f"/opt/dtk/part{number}/lib" for number in range(30)))


@pytest.fixture
def tool(patchelf):
    return check_patchelf(patchelf)


@pytest.fixture
def fake_patchelf(tmp_path):
    """Return a function that writes a program in patchelf's place: it tells a version, then runs `body`."""

    def make(version, body="exit 0"):
        path = tmp_path / "bin" / "patchelf"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit 0; fi\n{body}\n')
        path.chmod(0o755)
        return path

    return make


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="neither"),
        pytest.param({"runpath": "/vendor/build/lib"}, id="runpath"),
        pytest.param({"rpath": "/vendor/build/lib"}, id="rpath"),
        pytest.param({"rpath": "/vendor/a", "runpath": "/vendor/b"}, id="both"),
        pytest.param({"rpath": "$ORIGIN:" + "/opt/dtk/part0/lib" * 60}, id="rpath-that-is-longer"),
    ],
)
@pytest.mark.parametrize("runpath", [("$ORIGIN",), LONG], ids=["short", "long"])
def test_the_result_must_be_a_runpath_alone(make_elf, tool, spec, runpath):
    path = make_elf("liba.so", defined=("a",), needed=("libc.so.6",), **spec)
    info = apply_edit(Edit(path=path, runpath=runpath), tool)
    assert info == read_elf(path)
    assert (info.runpath, info.rpath) == (runpath, ())
    assert info.needed == ("libc.so.6",)
    assert read_symbols(path).defined == {"a"}
    subprocess.run([sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", path], check=True)


@pytest.mark.parametrize("runpath", [None, "$ORIGIN"], ids=["alone", "beside-the-right-runpath"])
def test_an_rpath_must_go_even_where_the_value_is_right(make_elf, tool, runpath):
    path = make_elf("liba.so", rpath="$ORIGIN", runpath=runpath)
    info = apply_edit(Edit(path=path, runpath=("$ORIGIN",)), tool)
    assert (info.runpath, info.rpath) == (("$ORIGIN",), ())


def test_a_file_that_is_right_already_must_not_be_touched(make_elf, fake_patchelf):
    path = make_elf("liba.so", runpath="$ORIGIN:/opt/dtk/lib")
    before = path.read_bytes(), path.stat().st_mtime_ns
    broken = check_patchelf(fake_patchelf("patchelf 0.18.0", "exit 1"))
    apply_edit(Edit(path=path, runpath=("$ORIGIN", "/opt/dtk/lib")), broken)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_repeated_edits_must_not_let_the_file_grow(make_elf, tool):
    path = make_elf("liba.so")
    sizes = set()
    for _ in range(5):
        apply_edit(Edit(path=path, runpath=LONG), tool)
        sizes.add(path.stat().st_size)
    assert len(sizes) == 1


def test_origin_must_stay_literal(make_elf, tool):
    path = make_elf("liba.so")
    apply_edit(Edit(path=path, runpath=("$ORIGIN", "$ORIGIN/../x")), tool)
    assert b"$ORIGIN:$ORIGIN/../x\0" in path.read_bytes()


def test_aarch64_segments_must_stay_aligned_to_64_kib(make_elf, tool):
    path = make_elf("liba.so", machine="aarch64", align=0x10000)
    info = apply_edit(Edit(path=path, runpath=LONG), tool)
    assert set(info.load_alignments) == {0x10000}


def test_the_page_size_must_be_given_for_aarch64_only(make_elf, fake_patchelf, tmp_path):
    fake = check_patchelf(fake_patchelf("patchelf 0.18.0", f'echo "$@" >> {tmp_path}/log'))
    for machine in ("x86_64", "aarch64"):
        path = make_elf(f"lib{machine}.so", machine=machine, align=0x10000)
        with pytest.raises(RefusedError):
            apply_edit(Edit(path=path, runpath=("/x",)), fake)
    assert (tmp_path / "log").read_text().splitlines() == [
        f"--set-rpath /x {tmp_path}/libx86_64.so",
        f"--page-size 65536 --set-rpath /x {tmp_path}/libaarch64.so",
    ]


def test_a_patchelf_that_changes_nothing_must_be_found_out(make_elf, fake_patchelf):
    fake = check_patchelf(fake_patchelf("patchelf 0.18.0"))
    path = make_elf("liba.so", rpath="/old")
    with pytest.raises(RefusedError) as caught:
        apply_edit(Edit(path=path, runpath=("$ORIGIN",)), fake)
    assert str(caught.value) == (
        f"{path}: {fake.path} 0.18.0 damaged the file: RUNPATH is '' and RPATH '/old', expected '$ORIGIN' and none"
    )
    assert caught.value.exit_code == 9


@pytest.mark.parametrize(
    ("after", "what"),
    [
        pytest.param({"needed": ("libm.so.6",)}, "needed was", id="needed"),
        pytest.param({"soname": "libz.so"}, "soname was", id="soname"),
        pytest.param({"defined": ("b",)}, "dynamic symbols are no longer the same", id="symbols"),
        pytest.param({"align": 0x1000}, r"segments are aligned to \(4096, 4096\), expected 65536", id="alignment"),
    ],
)
def test_a_patchelf_that_damages_a_file_must_be_found_out(make_elf, fake_patchelf, tmp_path, after, what):
    spec = {"defined": ("a",), "needed": ("libc.so.6",), "machine": "aarch64", "align": 0x10000}
    path = make_elf("liba.so", **spec)
    other = make_elf("liba.so", directory=tmp_path / "damaged", **{**spec, "runpath": "$ORIGIN", **after})
    fake = check_patchelf(fake_patchelf("patchelf 0.18.0", f'for last; do :; done; cp {other} "$last"'))
    with pytest.raises(RefusedError, match=what):
        apply_edit(Edit(path=path, runpath=("$ORIGIN",)), fake)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param("kill -SEGV $$", "was killed by SIGSEGV", id="signal"),
        pytest.param("echo 'maximum file size exceeded'; exit 1", "exited with 1", id="exit"),
    ],
)
def test_a_patchelf_that_fails_must_be_quoted_with_the_file(make_elf, fake_patchelf, body, words):
    path = make_elf("liba.so")
    with pytest.raises(ToolError) as caught:
        apply_edit(Edit(path=path, runpath=("$ORIGIN",)), check_patchelf(fake_patchelf("patchelf 0.18.0", body)))
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.exit_code == 7


def test_an_old_patchelf_must_be_refused_with_path_and_version(fake_patchelf):
    path = fake_patchelf("patchelf 0.14.3")
    with pytest.raises(ToolError) as caught:
        check_patchelf(path)
    assert str(caught.value) == (
        f"{path} is patchelf 0.14.3, which damages names on repeated edits; expected 0.14.4 or newer"
    )


@pytest.mark.parametrize("version", ["0.14.4", "0.15", "0.18.0", "0.19.3", "1.0"])
def test_a_new_enough_patchelf_must_be_taken(fake_patchelf, version):
    assert check_patchelf(fake_patchelf(f"patchelf {version}")).version == version


def test_a_program_that_tells_no_version_must_be_refused(fake_patchelf):
    with pytest.raises(ToolError, match="does not tell its version but says 'hello'"):
        check_patchelf(fake_patchelf("hello"))


def test_the_patchelf_of_this_environment_must_win_over_path(fake_patchelf, patchelf):
    old = fake_patchelf("patchelf 0.14.3")
    assert find_patchelf({"PATH": str(old.parent)}).path == patchelf


def test_path_must_be_searched_where_the_environment_has_none(fake_patchelf, tmp_path, monkeypatch):
    path = fake_patchelf("patchelf 0.18.0")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere" / "python"))
    assert find_patchelf({"PATH": str(path.parent)}).path == path
    with pytest.raises(ToolError, match="patchelf not found beside"):
        find_patchelf({"PATH": str(tmp_path)})


def test_the_oldest_version_must_be_the_one_that_fixed_repeated_edits():
    assert OLDEST == (0, 14, 4)
