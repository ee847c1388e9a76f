"""`maps`: whose each mapped library is, of a process and of a child, mixtures included."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.commands import WITHOUT_PRIVILEGES, answer, command, interpreter
from tests.support.fake_torch import CORE, DEVICE, FakeSite, complete_site
from torch_fl_boot.cli_maps import describe_maps
from torch_fl_boot.doctor_install import Installation, read_installation

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT = "print('ready', flush=True)\nimport sys\nsys.stdin.read()\n"


@pytest.fixture
def site(tmp_path) -> FakeSite:
    made: FakeSite = complete_site(tmp_path)
    return made


@pytest.fixture
def running(site: FakeSite) -> Iterator[Any]:
    """Return a function that starts a program in the site and gives its process once it is ready."""
    started = []

    def start(program: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program + WAIT],
            env={"PYTHONPATH": str(site.root)},
            cwd=site.root.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.communicate()


def installed(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> Installation:
    # Where `import torch` would find it.
    monkeypatch.syspath_prepend(site.root)
    found, _ = read_installation(site.root / "torch_fl")
    assert found is not None
    return found


def text(*paths: object) -> str:
    return "".join(f"7f00-7f01 r-xp 00000000 00:01 {number}   {path}\n" for number, path in enumerate(paths, start=1))


def owners(found: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["owners"][0] for item in found["libraries"]}


def test_process_on_the_bundle_must_be_told(site, running):
    found = answer(site, "maps", str(running("import torch_fl\n").pid))
    assert found["core"] == "bundle"
    told = owners(found)
    assert {told[name] for name in (*CORE, *DEVICE) if name != "libtorch_global_deps.so"} == {"bundle"}
    assert told["libgomp.so.1"] == "stock torch"


def test_process_on_stock_torch_must_be_told(site, running):
    found = answer(site, "maps", str(running("import torch\n").pid))
    assert (found["core"], set(owners(found).values()), found["problems"]) == ("stock torch", {"stock torch"}, [])


def test_process_without_torch_must_be_told(site, running):
    done = command(site, "maps", str(running("").pid))
    assert (done.returncode, done.stdout) == (0, "core: none\n")


def test_without_a_process_a_child_must_import_torch(site):
    found = answer(site, "maps")
    assert (found["process"], found["core"]) == (None, "stock torch")


def test_child_that_cannot_import_torch_must_be_quoted(site):
    (site.root / "torch/__init__.py").write_text("raise OSError('no luck')\n")
    done = command(site, "maps")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("torch_fl: error: `import torch` in a child process ended with exit status 1:\n")
    assert "OSError: no luck\nhint: run `python -m torch_fl doctor`" in done.stderr


def test_mixed_core_must_be_named_and_exit_1(site, running):
    foreign = site.library(site.root.parent / "foreign/libc10.so")
    process = running(f"import torch, ctypes\nctypes.CDLL({str(foreign)!r})\n")
    done = command(site, "maps", str(process.pid))
    assert done.returncode == 1
    assert done.stdout.endswith(
        f"core: mixed\nproblem: libc10.so is mapped 2 times: {foreign}, {site.torch_lib}/libc10.so\n"
    )


def test_core_from_two_folders_must_be_mixed_though_no_library_is_there_twice(site, monkeypatch):
    maps = text(site.bundle / "libc10.so", site.bundle / "libtorch_cpu.so", site.torch_lib / "libtorch_python.so")
    found = describe_maps(maps, installed(site, monkeypatch), 1)
    (problem,) = found.problems
    assert problem.startswith("the core comes from several folders: ")
    assert f"libtorch_cpu.so from {site.bundle}, libtorch_python.so from {site.torch_lib}" in problem


def test_library_that_the_bundle_leaves_to_stock_torch_must_not_make_a_mixture(tmp_path, monkeypatch):
    site = complete_site(tmp_path)
    site.write_bundle({name: needed for name, needed in {**CORE, **DEVICE}.items() if name != "libshm.so"})
    maps = text(site.bundle / "libc10.so", site.bundle / "libtorch_cpu.so", site.torch_lib / "libshm.so")
    found = describe_maps(maps, installed(site, monkeypatch), 1)
    assert (found.core, found.problems) == ("bundle", ())


def test_copy_with_a_repair_tools_hash_must_count_as_the_library(site, monkeypatch):
    maps = text(site.torch_lib / "libc10.so", "/elsewhere/libc10-0123abcd.so")
    found = describe_maps(maps, installed(site, monkeypatch), 1)
    assert found.core == "mixed"
    assert sorted(found.libraries[0].owners) == ["elsewhere", "stock torch"]


def test_process_that_is_not_there_must_be_an_error_with_exit_3(site):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    done = command(site, "maps", str(gone.pid))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"torch_fl: error: there is no process {gone.pid}: no /proc/{gone.pid}/maps\n"
        "hint: look for its number with `ps`\n"
    )


def test_process_that_may_not_be_looked_at_must_be_an_error(site, running):
    """A process that made itself undumpable belongs to root alone as far as /proc goes."""
    process = running("import ctypes\nctypes.CDLL(None).prctl(4, 0)\n")
    program = f"{WITHOUT_PRIVILEGES}\nfrom torch_fl_boot.cli import main\nprint(main(['maps', '{process.pid}']))"
    done = interpreter(site, "-c", program)
    assert done.stdout == "3\n"
    assert done.stderr == (
        f"torch_fl: error: /proc/{process.pid}/maps cannot be read: Permission denied\n"
        f"hint: run this command as the user of process {process.pid}, or root\n"
    )
