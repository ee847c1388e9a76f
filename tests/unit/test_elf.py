"""The ELF reader, and the writer of tiny ELF files that the other tests rely on."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundle.elf import is_elf, read_elf, read_symbols
from bundle.errors import MalformedError
from tests.support.tiny_elf import ElfSpec

FULL = ElfSpec(
    soname="libfull.so.1",
    needed=("libc.so.6", "libm.so.6"),
    runpath="$ORIGIN::/opt/sdk/lib",
    defined=("one", "two"),
    undefined=("three",),
    weak=("four",),
    version_needs={"libc.so.6": ("GLIBC_2.4", "GLIBC_2.34", "GLIBC_PRIVATE"), "libstdc++.so.6": ("GLIBCXX_3.4.9",)},
    payload=b"/some/text",
)


def dlopen(path, *flags):
    """Open in a process of its own, since a library cannot be unmapped for sure."""
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    return subprocess.run([sys.executable, *flags, "-c", code, str(path)], capture_output=True, text=True, check=False)


def test_read_elf_must_report_the_dynamic_section(tmp_path):
    info = read_elf(FULL.write(tmp_path / "libfull.so"))
    assert info.name == "libfull.so"
    assert info.soname == "libfull.so.1"
    assert info.needed == ("libc.so.6", "libm.so.6")
    assert info.runpath == ("$ORIGIN", "", "/opt/sdk/lib")
    assert info.rpath == ()
    assert info.machine == "x86_64"
    assert info.load_alignments == (0x1000, 0x1000)
    assert not info.executable_stack


def test_newest_must_compare_versions_as_numbers(tmp_path):
    info = read_elf(FULL.write(tmp_path / "libfull.so"))
    assert info.newest("GLIBC") == "GLIBC_2.34"
    assert info.newest("GLIBCXX") == "GLIBCXX_3.4.9"
    assert info.newest("CXXABI") is None


def test_rpath_and_runpath_must_be_told_apart(make_elf):
    info = read_elf(make_elf("libold.so", rpath="/a:/b"))
    assert (info.rpath, info.runpath) == (("/a", "/b"), ())


def test_an_empty_runpath_must_read_as_none(make_elf):
    assert read_elf(make_elf("libempty.so", runpath="")).runpath == ()


def test_a_missing_soname_must_read_as_none(make_elf):
    assert read_elf(make_elf("libplain.so", soname=None)).soname is None


@pytest.mark.parametrize(
    ("spec", "machine", "aligned"),
    [
        pytest.param({"machine": "aarch64", "align": 0x10000}, "aarch64", 0x10000, id="aarch64-64k-pages"),
        pytest.param({}, "x86_64", 0x1000, id="x86_64"),
    ],
)
def test_machine_and_alignment_must_come_from_the_headers(make_elf, spec, machine, aligned):
    info = read_elf(make_elf("liba.so", **spec))
    assert info.machine == machine
    assert set(info.load_alignments) == {aligned}


def test_an_executable_stack_must_be_seen(make_elf):
    assert read_elf(make_elf("libexec.so", executable_stack=True)).executable_stack


def test_read_symbols_must_tell_defined_from_undefined_and_leave_weak_out(tmp_path):
    symbols = read_symbols(FULL.write(tmp_path / "libfull.so"))
    assert symbols.defined == {"one", "two"}
    assert symbols.undefined_strong == {"three"}


@pytest.mark.parametrize("read", [read_elf, read_symbols], ids=["elf", "symbols"])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "not an ELF file", id="empty"),
        pytest.param(b"#!/bin/sh\n", "not an ELF file", id="text"),
        pytest.param(b"\x7fELF", "damaged ELF file", id="magic-only"),
        pytest.param(FULL.to_bytes()[:100], "damaged ELF file", id="truncated"),
        pytest.param(b"\x7fELF\x01" + FULL.to_bytes()[5:], "ELF file", id="wrong-class"),
    ],
)
def test_a_malformed_file_must_be_refused_with_its_name(tmp_path, read, content, reason):
    path = tmp_path / "libbroken.so"
    path.write_bytes(content)
    with pytest.raises(MalformedError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize("read", [read_elf, read_symbols], ids=["elf", "symbols"])
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(4, len(FULL.to_bytes()) - 1), value=st.integers(0, 255), cut=st.booleans())
def test_a_damaged_file_must_give_a_malformed_error_or_a_value(tmp_path, read, place, value, cut):
    content = bytearray(FULL.to_bytes())
    content[place] = value
    path = tmp_path / "libdamaged.so"
    path.write_bytes(content[:place] if cut else content)
    with contextlib.suppress(MalformedError):
        read(path)


def section_header(content, kind):
    """Return the offset of the header of the first section of a type."""
    start, count = struct.unpack_from("<Q", content, 40)[0], struct.unpack_from("<H", content, 60)[0]
    return next(
        at for at in range(start, start + 64 * count, 64) if struct.unpack_from("<I", content, at + 4)[0] == kind
    )


def test_headers_at_an_impossible_offset_must_be_the_files_fault(tmp_path):
    content = bytearray(FULL.to_bytes())
    struct.pack_into("<Q", content, 32, 1 << 62)  # e_phoff; the seek itself fails
    path = tmp_path / "libfar.so"
    path.write_bytes(content)
    with pytest.raises(MalformedError, match="damaged ELF file"):
        read_elf(path)


def test_a_version_table_that_counts_too_much_must_be_refused_at_once(tmp_path):
    content = bytearray(FULL.to_bytes())
    struct.pack_into("<I", content, section_header(content, 0x6FFFFFFE) + 44, 0xFFFFFFFF)  # sh_info
    path = tmp_path / "libmany.so"
    path.write_bytes(content)
    with pytest.raises(MalformedError, match="counts 4294967295 entries, more than it can hold"):
        read_elf(path)


def test_a_symbol_name_outside_of_the_string_table_must_be_refused(tmp_path):
    content = bytearray(FULL.to_bytes())
    symbols = struct.unpack_from("<Q", content, section_header(content, 11) + 24)[0]
    struct.pack_into("<I", content, symbols + 24, 0xFFFF)  # st_name of the first symbol after the null one
    path = tmp_path / "libnameless.so"
    path.write_bytes(content)
    with pytest.raises(MalformedError, match=r"a symbol's name lies outside of \.dynstr \(offset 0xffff\)"):
        read_symbols(path)


def test_is_elf_must_look_at_the_magic(tmp_path, make_elf):
    (tmp_path / "version.py").write_text("")
    assert is_elf(make_elf("liba.so"))
    assert not is_elf(tmp_path / "version.py")


def test_tiny_elf_must_load_with_its_needed_library(make_elf):
    make_elf("libbase.so", defined=("base_symbol",))
    user = make_elf("libuser.so", needed=("libbase.so",), undefined=("base_symbol",), runpath="$ORIGIN")
    assert dlopen(user).returncode == 0, dlopen(user).stderr


def test_tiny_elf_must_not_load_without_a_provider(make_elf):
    done = dlopen(make_elf("libuser.so", undefined=("nowhere_defined",)))
    assert "undefined symbol: nowhere_defined" in done.stderr


def test_tiny_elf_must_load_with_version_needs_and_fail_on_an_unknown_version(make_elf):
    good = make_elf("libgood.so", needed=("libc.so.6",), version_needs={"libc.so.6": ("GLIBC_2.2.5",)})
    bad = make_elf("libbad.so", needed=("libc.so.6",), version_needs={"libc.so.6": ("GLIBC_2.999",)})
    assert dlopen(good).returncode == 0
    assert "GLIBC_2.999" in dlopen(bad).stderr


def test_tiny_elf_must_survive_patchelf(make_elf, patchelf):
    path = make_elf("liba.so", defined=("a",), runpath="$ORIGIN")
    subprocess.run([patchelf, "--set-rpath", "$ORIGIN:" + "/opt/long" * 50, path], check=True)
    assert read_elf(path).runpath == ("$ORIGIN", "/opt/long" * 50)
    assert read_symbols(path).defined == {"a"}
    assert dlopen(path).returncode == 0
