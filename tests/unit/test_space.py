"""Disk space: asked for before work begins, by the sizes of what is there; and real full disks while work goes on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from bundle import space
from bundle.audit import audit
from bundle.backends import METAX
from bundle.disk import existing
from bundle.errors import NoSpaceError
from bundle.scratch import temporary_variables
from bundle.space import MB, Undertaking, outlook, require, require_temporary, size_of
from bundle.stock import StockTorch
from bundle.verify import VerifyInputs, verify_stage
from bundle.workspace import Workspace
from tests.support.namespaces import in_tmpfs
from tests.support.wheels import WheelSpec

REPOSITORY = Path(__file__).parents[2]
HUGE = 8 * 10**12
STOCK = StockTorch(version="2.10.0+cpu", index="", python="3.12")


def fake_stock(folder: Path, sizes: dict[str, int]) -> Path:
    """What the forge takes for a stock torch; its libraries are holes of any size."""
    package = folder / "torch"
    for name, size in {"lib/libtorch_cpu.so": 0, "include/c10/core/Device.h": 0, **sizes}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.truncate(path, size)
    (package / "version.py").write_text("__version__ = '2.10.0+cpu'\n")
    return package


def forged(stock: Path, out: Path) -> subprocess.CompletedProcess[str]:
    # Any program that tells its version will do for a compiler that is never reached.
    command: list[str | Path] = [sys.executable, "-m", "tests.forge", "--backend", "metax"]
    command += ["--stock", stock, "--out", out, "--cxx", sys.executable]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_too_little_space_must_name_who_needed_found_where_and_what_next(tmp_path):
    with pytest.raises(NoSpaceError, match=r"^dcu: x needs 8000000 MB in .*/a/b, but only \d+ MB are free$") as caught:
        require("dcu: x", HUGE, tmp_path / "a" / "b")
    assert caught.value.hint == "make room there, or work in a checkout on another disk"
    assert caught.value.exit_code == 10
    require("dcu: x", 1, tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()


def test_temporary_files_must_be_asked_for_where_tmpdir_says(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(NoSpaceError, match=rf"needs 8000000 MB in {tmp_path}, but") as caught:
        require_temporary("dcu: x", HUGE)
    assert caught.value.hint == "make room there, or name a folder on another disk with TMPDIR"


def test_file_system_that_tells_no_size_must_not_be_refused():
    require("dcu: x", HUGE, Path("/proc/self"))


def test_place_of_a_folder_still_to_make_must_be_the_nearest_that_is_there(tmp_path):
    (tmp_path / "file").touch()
    assert existing(tmp_path / "a" / "b") == tmp_path
    assert existing(tmp_path / "file" / "b") == tmp_path
    assert existing(tmp_path) == tmp_path


def test_size_of_a_folder_must_be_what_it_takes_on_disk(tmp_path):
    assert size_of(tmp_path / "none") == 0
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "full").write_bytes(os.urandom(MB))
    (tmp_path / "a" / "twice").hardlink_to(tmp_path / "a" / "full")
    (tmp_path / "a" / "link").symlink_to("full")
    with (tmp_path / "hole").open("wb") as hole:
        hole.truncate(HUGE)
    assert MB <= size_of(tmp_path) < 1.1 * MB


def test_forge_must_ask_for_what_it_copies_before_it_compiles(tmp_path):
    stock = fake_stock(tmp_path, {"lib/libtorch_cpu.so": HUGE, "_C.cpython-312-x86_64-linux-gnu.so": HUGE})
    done = forged(stock, tmp_path / "out" / "metax")
    assert done.returncode == 10, done.stderr
    assert "bundle: error: metax: the forged vendor needs 16000011 MB in " in done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".metax.lock"]
    assert "Traceback" not in done.stderr


def test_forge_must_refuse_what_the_system_refuses(tmp_path):
    (tmp_path / "file").touch()
    done = forged(fake_stock(tmp_path, {}), tmp_path / "file" / "metax")
    assert done.returncode == 10
    assert done.stderr.startswith(f"bundle: error: {tmp_path}/file: ")
    assert "Traceback" not in done.stderr


def claim(wheel: Path, part: str, size: int) -> Path:
    """Make a wheel's directory say that a member unpacks to this many bytes."""
    with zipfile.ZipFile(wheel, "a") as archive:
        next(info for info in archive.infolist() if part in info.filename).file_size = size
        archive.writestr("torch_fl/more.txt", "writes the directory anew")
    return wheel


def test_verification_must_ask_for_the_unpacked_wheel_before_it_makes_an_environment(tmp_path, monkeypatch, ui):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    wheel = claim(WheelSpec().write(tmp_path), "libc10.so", HUGE)
    workspace = Workspace(backend="metax", forged=True, repository=tmp_path)
    inputs = VerifyInputs(backend=METAX, stock=STOCK, workspace=workspace, wheel=wheel)
    with pytest.raises(NoSpaceError, match=rf"metax: the verification needs 80\d+ MB in {tmp_path}, ") as caught:
        verify_stage(inputs, {}, ui)
    assert "TMPDIR" in caught.value.hint
    assert list(tmp_path.iterdir()) == [wheel]


def test_audit_must_ask_for_the_largest_libraries(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    wheel = claim(WheelSpec().write(tmp_path), "libc10.so", HUGE)
    with pytest.raises(NoSpaceError, match=rf"{re.escape(wheel.name)}: the audit needs 80\d+ MB in {tmp_path}, "):
        audit(wheel)
    assert list(tmp_path.iterdir()) == [wheel]


def test_outlook_must_be_one_line_with_needs_and_what_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said = outlook(Undertaking(name="demo", kept=1500 * MB, temporary=200 * MB), tmp_path)
    assert said.startswith(
        f"demo writes about 1.5 GB to build/ and dist/ (0.0 GB are there) and up to 0.2 GB to {tmp_path} while it runs"
    )
    assert said.endswith(f" GB in {tmp_path}")
    assert "\n" not in said


def test_session_that_cannot_end_must_be_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for kept, temporary in ((HUGE, 0), (0, HUGE), (HUGE // 2, HUGE // 2)):
        with pytest.raises(NoSpaceError, match="session demo needs 8000000 MB in"):
            outlook(Undertaking(name="demo", kept=kept, temporary=temporary), tmp_path)


def test_figures_of_the_sessions_must_be_those_of_the_readme():
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    for session in (space.DEMO, space.TESTS):
        assert f"`{session.name}` {(session.kept + session.temporary) / 10**9:.1f} GB" in text


@pytest.fixture
def small_disk(tmp_path, monkeypatch):
    """Return a function that runs a program on a small file system of its own, `disk`; FOLDER names another folder."""

    def run(program, size):
        for name in ("disk", "folder"):
            (tmp_path / name).mkdir()
        monkeypatch.setenv("FOLDER", str(tmp_path / "folder"))
        return in_tmpfs(tmp_path / "disk", program, size=size)

    return run


ASKING = """
import tempfile
from bundle.backends import METAX
from bundle.compile import build_python
from bundle.errors import NoSpaceError
from bundle.repack import repack_stage
from bundle.stock import StockTorch
from bundle.ui import Reporter
from bundle.verify import VerifyInputs, verify_stage
from bundle.workspace import Workspace
from tests.support.repacking import inputs_of
from tests.support.wheels import WheelSpec
folder, ui, said = Path(os.environ["FOLDER"]), Reporter(), []
stock = StockTorch(version="2.10.0+cpu", index="", python="3.12")
workspace = Workspace(backend="metax", forged=True, repository=Path.cwd())
Path("pyproject.toml").write_text("[dependency-groups]\\n")
def refused(stage):
    try:
        stage()
    except NoSpaceError as err:
        said.append(str(err) + "; " + err.hint)
refused(lambda: build_python(stock, workspace, {}, ui))
tempfile.tempdir = str(Path.cwd())
wheel = WheelSpec().write(folder)
refused(lambda: verify_stage(VerifyInputs(backend=METAX, stock=stock, workspace=workspace, wheel=wheel), {}, ui))
Path("ballast").write_bytes(bytes(os.statvfs(".").f_bavail * 4096))
inputs = inputs_of(WheelSpec(), folder)
(Path.cwd() / "dist").mkdir()
tempfile.tempdir = str(folder)
refused(lambda: repack_stage(inputs.__class__(**{**vars(inputs), "dist": Path.cwd() / "dist"}), ui))
print(json.dumps(said))
"""


def test_stages_must_ask_on_the_disk_that_they_write_to(tmp_path, small_disk):
    environment, verification, wheel = small_disk(ASKING, "200k")
    assert "environment with torch==2.10.0+cpu for Python 3.12 needs " in environment
    assert f" MB in {tmp_path}/disk/build/envs, but only 0 MB are free; make room there, or work in " in environment
    assert "metax: the verification needs " in verification
    assert verification.endswith("make room there, or name a folder on another disk with TMPDIR")
    assert f"metax: the wheel needs 0 MB in {tmp_path}/disk/dist, but only 0 MB are free" in wheel


OUTLOOKS = """
import tempfile
from bundle.errors import NoSpaceError
from bundle.space import MB, Undertaking, outlook
tempfile.tempdir = os.environ["FOLDER"]
said = []
Path("build").mkdir()
for kept, made in ((4, 0), (5, 0), (4, 2)):
    Path("build", "made").write_bytes(bytes(made * MB))
    try:
        said.append(outlook(Undertaking(name="demo", kept=kept * MB, temporary=0), Path.cwd()))
    except NoSpaceError as err:
        said.append(str(err))
print(json.dumps(said))
"""


def test_what_an_earlier_run_left_must_not_be_asked_for_again(tmp_path, small_disk):
    # A tenth less than measured is not clearly too little.
    enough, too_little, rest = small_disk(OUTLOOKS, "4000k")
    assert enough.startswith("demo writes about ")
    assert too_little == f"session demo needs 5 MB in {tmp_path}/disk/build, but only 4 MB are free"
    assert rest.startswith("demo writes about ")


LINKED = """
from bundle.space import MB, Undertaking, outlook
Path("build").symlink_to(os.environ["FOLDER"])
print(json.dumps([outlook(Undertaking(name="demo", kept=5 * MB, temporary=0), Path.cwd())]))
"""


def test_what_goes_to_build_must_be_asked_for_where_build_is(small_disk):
    assert small_disk(LINKED, "1m")[0].startswith("demo writes about ")


FILLED = """
import contextlib, io
from bundle.guard import guarded
from bundle.ui import Reporter
from tests.forge.package import StockTorch, copy_core
for number in range(8):
    path = Path(os.environ["FOLDER"], f"torch/lib/lib{number}.so")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(100_000))
stock = StockTorch(package=Path(os.environ["FOLDER"], "torch"), version="2.10.0", git_version="x")
err = io.StringIO()
code = guarded(lambda: copy_core(stock, Path.cwd()), Reporter(err=err))
print(json.dumps([str(code), err.getvalue()]))
"""


def test_disk_that_fills_up_in_a_copy_of_many_files_must_be_one_refusal(tmp_path, small_disk):
    code, said = small_disk(FILLED, "400k")
    assert code == "10"
    assert said.startswith(f"bundle: error: {tmp_path}/folder/torch/lib/lib")
    assert ".so: No space left on device, and so for " in said
    assert f"; free now: 0 MB in {tmp_path}/disk/" in said
    assert said.endswith("then run the same command again\n")
    assert len(said.splitlines()) == 2


def test_file_size_limit_in_a_copy_of_many_files_must_be_one_refusal(tmp_path):
    # As above, wherever no file system can be mounted.
    stock = fake_stock(tmp_path, {f"lib/lib{number}.so": MB for number in range(3)})
    program = f"""
import resource, sys
from pathlib import Path
from bundle.guard import guarded
from bundle.ui import Reporter
from tests.forge.package import StockTorch, copy_core
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
stock = StockTorch(package=Path({str(stock)!r}), version="2.10.0", git_version="x")
sys.exit(guarded(lambda: copy_core(stock, Path({str(tmp_path / "out")!r})), Reporter()))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 10, done.stderr
    assert ".so: File too large, and so for 2 more\n" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_temporary_files_of_tests_must_lie_below_pytests_own(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    if not temporary_variables(base / "tmp0"):
        pytest.skip(f"no socket could be made below {base}, whose name is too long")
    assert Path(tempfile.gettempdir()).is_relative_to(base)
    assert Path(os.environ["TMPDIR"]).is_relative_to(base)
