from __future__ import annotations

import csv
import hashlib
import io
import os
import platform
import random
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bundle.deflate import CHUNK
from bundle.errors import InputNotFoundError, MalformedError, RefusedError
from bundle.wheelfile import EPOCH, Member, open_wheel, write_wheel

ROOT = Path(__file__).resolve().parents[2]
INFO = "a-1.dist-info"


def big(size):
    """Content of several chunks that compresses somewhat."""
    return (random.Random(7).randbytes(size // 4 + 1) * 4)[:size]  # noqa: S311 - test data, not a secret


def members():
    return [
        Member.of_bytes(f"{INFO}/WHEEL", b"Wheel-Version: 1.0\n"),
        Member.of_bytes("zz/last.py", b"print()\n"),
        Member.of_bytes("a/libbig.so.1", big(3 * CHUNK + 12345)),
        Member.of_bytes("a/exactly.bin", big(2 * CHUNK)),
        Member.of_bytes("a/empty.py", b""),
        Member(name="a/bin/ptxas", size=3, open=lambda: io.BytesIO(b"abc"), executable=True),
        Member.of_bytes('a/lib,odd "x".so', b"\x7fELF"),
    ]


@pytest.fixture
def wheel(tmp_path):
    return write_wheel(tmp_path / "dist" / "a-1-py3-none-any.whl", members(), dist_info=INFO)


def test_entries_must_be_sorted_with_dist_info_and_record_last(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert archive.namelist() == [
            "a/bin/ptxas",
            "a/empty.py",
            "a/exactly.bin",
            'a/lib,odd "x".so',
            "a/libbig.so.1",
            "zz/last.py",
            f"{INFO}/WHEEL",
            f"{INFO}/RECORD",
        ]


def test_entries_must_carry_a_fixed_time_two_modes_and_no_extra_field(wheel):
    with zipfile.ZipFile(wheel) as archive:
        infos = archive.infolist()
    modes = {info.filename: info.external_attr >> 16 for info in infos}
    executable = {"a/bin/ptxas", "a/libbig.so.1", 'a/lib,odd "x".so'}
    assert modes == {name: stat.S_IFREG | (0o755 if name in executable else 0o644) for name in modes}
    assert {(info.date_time, info.extra, info.create_system) for info in infos} == {(EPOCH, b"", 3)}


def test_the_standard_library_must_read_every_byte_back(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        for member in members():
            assert archive.read(member.name) == member.open().read(), member.name


def test_record_must_list_each_file_with_its_hash_and_size(wheel):
    with zipfile.ZipFile(wheel) as archive:
        rows = list(csv.reader(io.StringIO(archive.read(f"{INFO}/RECORD").decode())))
    assert sorted(row[0] for row in rows) == sorted([*(member.name for member in members()), f"{INFO}/RECORD"])
    assert rows[-1] == [f"{INFO}/RECORD", "", ""]
    assert [row[2] for row in rows if row[0] == "a/libbig.so.1"] == [str(3 * CHUNK + 12345)]


_WRITE = """
import os, sys
sys.path[:0] = sys.argv[3:]
os.umask(int(sys.argv[2], 8))
from pathlib import Path
from bundle import deflate, wheelfile
wheelfile.THREADS = int(os.environ["THREADS"])
from test_wheelfile import INFO, members
wheelfile.write_wheel(Path(sys.argv[1]), reversed(members()), dist_info=INFO)
"""


@pytest.mark.parametrize(
    ("umask", "environment"),
    [
        pytest.param("0000", {"THREADS": "1", "TZ": "Asia/Shanghai", "LC_ALL": "C"}, id="one-thread"),
        pytest.param(
            "0077", {"THREADS": "5", "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": "1700000000"}, id="five-threads"
        ),
    ],
)
def test_bytes_must_not_depend_on_folder_umask_zone_locale_threads_or_order(wheel, tmp_path, umask, environment):
    folder = tmp_path / "another folder"
    folder.mkdir()
    target = folder / "b.whl"
    command = [sys.executable, "-c", _WRITE, str(target), umask, str(ROOT), str(Path(__file__).parent)]
    subprocess.run(command, cwd=folder, env={**os.environ, **environment}, check=True)
    assert hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(wheel.read_bytes()).digest()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="isa-l has other code, and other bytes, per architecture")
def test_bytes_must_stay_what_they_are_for_this_isal_version(tmp_path):
    # A wheel rebuilt from one release's sources must not change; a new isal version may change this on purpose.
    # Many distinct words, so that isa-l's levels give different bytes.
    source = random.Random(7)  # noqa: S311 - test data, not a secret
    words = [source.randbytes(source.randrange(2, 12)) for _ in range(5000)]
    data = b"".join(source.choices(words, k=200_000))[: CHUNK + 5]
    target = write_wheel(tmp_path / "a.whl", [Member.of_bytes("a", data)], dist_info=INFO)
    assert (
        hashlib.sha256(target.read_bytes()).hexdigest()
        == "eb44bf5718832fc489bcb1ffffb6d788c14973d53bd1f16b8b846f2445e3b6da"
    )


def test_members_must_stream_so_that_memory_stays_bounded(tmp_path):
    size = 192 << 20
    program = (
        "import resource, sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "from bundle.wheelfile import Member, write_wheel\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
        "before = peak()\n"
        f"member = Member(name='big', size={size}, open=lambda: open(sys.argv[3], 'rb'))\n"
        "write_wheel(Path(sys.argv[1]), [member], dist_info='a-1.dist-info')\n"
        "print(peak() - before)\n"
    )
    source = tmp_path / "sparse"
    with source.open("wb") as stream:
        stream.truncate(size)
    command = [sys.executable, "-c", program, str(tmp_path / "a.whl"), str(ROOT), str(source)]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown < 60


def test_members_of_one_name_must_be_refused(tmp_path):
    twice = [Member.of_bytes("a", b""), Member.of_bytes("a", b"x")]
    with pytest.raises(RefusedError) as caught:
        write_wheel(tmp_path / "a.whl", twice, dist_info=INFO)
    assert str(caught.value) == "a.whl: would hold two files of one name: a"
    assert list(tmp_path.iterdir()) == []


def test_content_that_lacks_its_declared_hash_must_leave_no_wheel(tmp_path):
    member = Member(name="a", size=1, open=lambda: io.BytesIO(b"b"), sha256=hashlib.sha256(b"a").hexdigest())
    with pytest.raises(RefusedError) as caught:
        write_wheel(tmp_path / "a.whl", [member], dist_info=INFO)
    assert str(caught.value) == "a.whl: files changed while the wheel was written: a"
    assert list(tmp_path.iterdir()) == []


def test_a_failing_member_must_leave_the_older_wheel_untouched(tmp_path):
    target = tmp_path / "a.whl"
    target.write_bytes(b"older")

    def unreadable():
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        write_wheel(target, [Member(name="a", size=1, open=unreadable)], dist_info=INFO)
    assert [path.name for path in tmp_path.iterdir()] == ["a.whl"]
    assert target.read_bytes() == b"older"


def test_leftovers_of_a_killed_run_must_go_and_those_of_a_live_one_stay(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / f".a.whl.{gone.pid}.part").touch()
    (tmp_path / f".a.whl.{os.getppid()}.part").touch()
    write_wheel(tmp_path / "a.whl", [], dist_info=INFO)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".a.whl.{os.getppid()}.part", "a.whl"]


def test_view_must_tell_files_from_directories_and_links(tmp_path):
    path = tmp_path / "a.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/", b"")
        link = zipfile.ZipInfo("a/link.so")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, b"libreal.so")
        archive.writestr("a/real.py", b"x")
        archive.writestr(f"{INFO}/WHEEL", b"")
    with open_wheel(path) as view:
        assert [entry.name for entry in view.files] == ["a/real.py", f"{INFO}/WHEEL"]
        assert [entry.name for entry in view.entries if entry.is_link] == ["a/link.so"]
        assert view.read("a/real.py") == b"x"
        assert view.has("a/real.py")
        assert not view.has("a/link.so")
        assert view.record_name == f"{INFO}/RECORD"


def test_a_missing_wheel_must_be_named(tmp_path):
    with pytest.raises(InputNotFoundError) as caught, open_wheel(tmp_path / "a.whl"):
        pass
    assert str(caught.value) == f"no wheel at {tmp_path}/a.whl"


def test_a_file_that_is_no_archive_must_be_refused(tmp_path):
    (tmp_path / "a.whl").write_bytes(b"not a zip")
    with pytest.raises(MalformedError) as caught, open_wheel(tmp_path / "a.whl"):
        pass
    assert str(caught.value) == f"{tmp_path}/a.whl: not a wheel: File is not a zip file"
    assert caught.value.exit_code == 8


@pytest.mark.parametrize(
    ("names", "found"),
    [
        pytest.param(["a.py"], "none", id="none"),
        pytest.param(["b-1.dist-info/WHEEL", "a-1.dist-info/WHEEL"], "a-1.dist-info, b-1.dist-info", id="two"),
    ],
)
def test_other_than_one_dist_info_must_be_refused(tmp_path, names, found):
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    with pytest.raises(MalformedError) as caught, open_wheel(tmp_path / "a.whl"):
        pass
    assert str(caught.value) == f"a.whl: expected one dist-info directory, found {found}"


def test_a_damaged_member_must_be_named(wheel):
    data = bytearray(wheel.read_bytes())
    with zipfile.ZipFile(wheel) as archive:
        info = archive.getinfo("zz/last.py")
    data[info.header_offset + 30 + len(info.filename) + 2] ^= 0xFF
    wheel.write_bytes(data)
    with open_wheel(wheel) as view, pytest.raises(MalformedError, match=r"zz/last.py is damaged"):
        view.read("zz/last.py")


def test_a_member_that_is_not_there_must_be_named(wheel):
    with open_wheel(wheel) as view, pytest.raises(MalformedError) as caught:
        view.read("nope")
    assert str(caught.value) == f"{wheel.name}: no nope in it"
