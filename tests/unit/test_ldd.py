"""What `ldd` says, and what of it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bundle.ldd import Resolution, complaints, parse_ldd

OUTPUT = """\
\tlinux-vdso.so.1 (0x00007ffd5a5f2000)
\tlibc10.so => /env/site-packages/torch_fl/lib_dcu/libc10.so (0x00007f0000000000)
\tlibgalaxyhip.so.5 => not found
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0000000000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f0000000000)
"""


def test_parse_must_give_each_needed_library():
    assert [(item.soname, item.path) for item in parse_ldd("lib/x.so", OUTPUT)] == [
        ("libc10.so", Path("/env/site-packages/torch_fl/lib_dcu/libc10.so")),
        ("libgalaxyhip.so.5", None),
        ("libc.so.6", Path("/lib/x86_64-linux-gnu/libc.so.6")),
    ]


@pytest.mark.parametrize(
    ("soname", "path", "expected"),
    [
        pytest.param("libgalaxyhip.so.5", None, (), id="driver-may-be-absent"),
        pytest.param("libgalaxyhip.so.5", "opt/sdk/libgalaxyhip.so.5", (), id="driver-may-be-anywhere"),
        pytest.param(
            "libshm.so",
            None,
            ("lib/x.so needs libshm.so: not found, and not one of the driver's libraries",),
            id="anything-else-may-not",
        ),
        pytest.param("libc10.so", "inside/libc10.so", (), id="inside"),
        pytest.param(
            "libc10.so",
            "build/libc10.so",
            ("lib/x.so needs libc10.so: found at {build}, outside the environment and the system",),
            id="build-machine",
        ),
    ],
)
def test_complaints_must_name_file_and_library(tmp_path, soname, path, expected):
    found = tmp_path / path if path else None
    wrong = complaints(
        [Resolution(file="lib/x.so", soname=soname, path=found)],
        allowed=[tmp_path / "inside"],
        drivers=["libgalaxyhip.so*"],
    )
    assert wrong == tuple(text.format(build=found) for text in expected)
