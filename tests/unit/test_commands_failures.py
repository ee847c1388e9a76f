"""Commands that cannot do their work, or cannot tell: exit code, text, JSON, and nothing half done."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.soak.kills import differing, snapshot
from tests.support.commands import WITHOUT_PRIVILEGES, answer, command, interpreter
from tests.support.fake_torch import FakeSite, complete_site
from tests.support.relinked import backup, do_relink

CLOSED = "the answer could not be written to stdout: it is closed\nhint: give the command a stdout to write to\n"
COMMANDS = ["status", "doctor --quick", "maps", "relink", "restore"]


@pytest.fixture
def site(tmp_path) -> FakeSite:
    return complete_site(tmp_path)


def shell(site: FakeSite, script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in which $RUN starts a command."""
    env = {"PYTHONPATH": str(site.root), "PATH": os.environ["PATH"], **environ}
    env["RUN"] = f"{sys.executable} -m torch_fl"
    return subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=False, cwd=site.root)


def in_namespace(site: FakeSite, mount: str, run: str) -> subprocess.CompletedProcess[str]:
    """Run a command after a mount that nobody else sees."""
    probe = shell(site, f"unshare --mount sh -c '{mount}'")
    if probe.returncode:
        pytest.skip(f"no mount namespace to be had here: {probe.stderr.strip()}")
    return shell(site, f"unshare --mount sh -c '{mount} && {run}'")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("redirection", "words"),
    [(">&-", "it is closed"), (">/dev/full", "No space left on device")],
    ids=["closed", "full"],
)
def test_stdout_that_takes_nothing_must_be_a_refusal(site, name, redirection, words):
    done = shell(site, f"$RUN {name} {redirection}")
    assert done.returncode == 3
    assert done.stderr.endswith(CLOSED.replace("it is closed", words))
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", [*COMMANDS, "doctor"])
def test_closed_stderr_must_not_matter(site, name):
    assert shell(site, f"$RUN {name} 2>&-").returncode == 0


def test_refusal_must_have_its_code_without_a_stderr(site):
    assert shell(site, "$RUN maps 999999999 2>&-").returncode == 3


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("ascii", r"\xe9t\xe9"),
        ("ascii:strict", r"\xe9t\xe9"),
        ("latin-1", "\N{REPLACEMENT CHARACTER}t\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_path_that_the_encoding_has_no_letters_for_must_be_escaped(site, encoding, printed):
    env = {"PYTHONPATH": str(site.root), "FLAGOS_HOOK": "\xe9t\xe9", "PYTHONIOENCODING": encoding}
    call = [sys.executable, "-m", "torch_fl", "status"]
    done = subprocess.run(call, env=env, cwd=site.root, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"variable   FLAGOS_HOOK={printed}\n" in done.stdout.decode(errors="replace")


@pytest.mark.parametrize("arguments", [["status"], ["doctor", "--quick"], ["maps"]], ids=" ".join)
def test_bytes_that_are_no_text_must_be_printed(site, arguments):
    env = {b"PYTHONPATH": os.fsencode(site.root), b"FLAGOS_HOOK": b"\xff", b"LC_ALL": b"C.UTF-8"}
    for json_too in ([], ["--json"]):
        call = [sys.executable, "-m", "torch_fl", *arguments, *json_too]
        done = subprocess.run(call, env=env, cwd=site.root, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param(["maps", "999999999"], "MapsError", id="maps"),
        pytest.param(["relink"], "DamagedBundleError", id="relink"),
        pytest.param(["restore", "--torch", "/nonexistent"], "TorchMissingError", id="restore"),
    ],
)
def test_refusal_as_json_must_hold_what_the_text_says(site, arguments, error):
    (site.bundle / "libshm.so").unlink()
    done = command(site, *arguments, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 3
    assert {key: found[key] for key in ("schema", "command", "error")} == {
        "schema": 1, "command": arguments[0], "error": error
    }  # fmt: skip
    assert done.stderr == f"torch_fl: error: {found['what']}\nhint: {found['hint']}\n"


def test_refusal_of_the_system_must_not_pass_for_a_mistake_of_ours(site):
    # No pipe can be had for the process that `maps` starts.
    program = "import resource, torch_fl_boot.cli as cli; resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))\n"
    done = site.run(f"{program}raise SystemExit(cli.main(['maps', '--json']))")
    assert done.returncode == 3
    found = json.loads(done.stdout)
    assert (found["error"], found["what"]) == ("OSError", "a file or process: Too many open files")
    assert done.stderr == f"torch_fl: error: {found['what']}\nhint: {found['hint']}\n"


def test_mistake_of_ours_must_exit_70_with_traceback_and_json(site):
    with (site.root / "torch_fl_boot/status.py").open("a") as stream:
        stream.write("\ndef status_of(*_): raise ZeroDivisionError('mistake')\n")
    shutil.rmtree(site.root / "torch_fl_boot/__pycache__")
    done = command(site, "status", "--json")
    assert done.returncode == 70
    assert done.stderr.startswith("torch_fl: Traceback (most recent call last):\n")
    assert done.stderr.endswith(
        "torch_fl: error: ZeroDivisionError: mistake\nhint: this is a fault of torch_fl, please report it\n"
    )
    assert json.loads(done.stdout)["error"] == "ZeroDivisionError"


def test_interruption_must_exit_130_and_say_so(site):
    (site.root / "torch/__init__.py").write_text("import os, signal, time\nprint(os.getppid())\ntime.sleep(600)\n")
    program = [sys.executable, "-m", "torch_fl", "maps", "--json"]
    env = {"PYTHONPATH": str(site.root), "PATH": os.environ["PATH"]}
    with subprocess.Popen(
        program, env=env, cwd=site.root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while process.poll() is None and not children.read_text():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert json.loads(out)["error"] == "KeyboardInterrupt"
    assert err.startswith("torch_fl: error: interrupted\nhint: run it again; ")


@pytest.mark.parametrize("torch", ["/nonexistent", "/etc/passwd", "", "torch/lib"])
@pytest.mark.parametrize("name", ["relink", "restore"])
def test_folder_that_is_no_torch_must_be_refused(site, name, torch):
    before = snapshot(site.root)
    done = shell(site, f"$RUN {name} --torch '{torch}'")
    assert (done.returncode, done.stdout) == (3, "")
    place = os.path.normpath(site.root / torch)
    more = {"relink": "", "restore": ", and no backup of one"}[name]
    assert done.stderr.splitlines()[0].endswith(f" {place} holds none{more}")
    assert differing(before, snapshot(site.root)) == []


def test_restore_without_a_torch_must_name_the_option(site):
    shutil.rmtree(site.root / "torch")
    assert command(site, "restore").stderr == (
        "torch_fl: error: torch_fl finds no torch to work on: no torch is installed\n"
        "hint: name the folder of the torch package with --torch\n"
    )


def test_restore_must_not_need_a_version_that_can_be_read(site):
    do_relink(site)
    (site.root / "torch/version.py").write_text("def (")
    done = command(site, "restore")
    assert (done.returncode, done.stderr) == (0, "")
    assert not backup(site).exists()


NO_PROC = "mount -t tmpfs none /proc"


@pytest.mark.parametrize("name", ["status", "doctor --quick"])
def test_machine_without_proc_must_be_a_finding(site, name):
    done = in_namespace(site, NO_PROC, f"$RUN {name}")
    assert done.returncode == 1, done.stderr
    assert "error R007 /proc/self/maps: there is no /proc that tells what a process has mapped\n" in done.stdout
    assert "hint:     mount /proc in this container or chroot\n" in done.stdout


@pytest.mark.parametrize("name", ["maps", "maps 1", "relink"])
def test_machine_without_proc_must_refuse_what_needs_it(site, name):
    before = snapshot(site.root)
    done = in_namespace(site, NO_PROC, f"$RUN {name}")
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert "/proc" in done.stderr
    assert differing(before, snapshot(site.root)) == []


def test_machine_without_proc_must_still_restore(site):
    before = snapshot(site.root)
    do_relink(site)
    assert in_namespace(site, NO_PROC, "$RUN restore").returncode == 0
    assert differing(before, snapshot(site.root)) == []


@pytest.fixture
def closed(tmp_path):
    """A folder that only root may enter."""
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0)
    yield folder
    folder.chmod(0o755)


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({"LD_LIBRARY_PATH": "{closed}/in"}, id="library-path"),
        pytest.param({"LD_PRELOAD": "{closed}/in/libx.so"}, id="preload"),
        pytest.param({"LD_LIBRARY_PATH": "/" + "x" * 300}, id="name-too-long"),
    ],
)
def test_folders_that_others_named_must_not_stop_the_doctor(site, closed, environ):
    environ = {key: value.replace("{closed}", str(closed)) for key, value in environ.items()}
    program = f"{WITHOUT_PRIVILEGES}\nfrom torch_fl_boot.cli import main\nprint(main(['doctor', '--quick']))"
    done = interpreter(site, "-c", program, environ=environ)
    assert "other findings; sha256 not checked\n" in done.stdout, done.stderr


def test_working_folder_that_is_gone_must_not_stop_the_doctor(site):
    done = shell(site, "mkdir gone && cd gone && rmdir ../gone && $RUN doctor --quick", LD_LIBRARY_PATH="/nowhere")
    assert (done.returncode, done.stderr) == (0, "")


def test_other_personality_must_be_a_finding(site):
    if shutil.which("setarch") is None or subprocess.run(["setarch", "i686", "true"], check=False).returncode:
        pytest.skip("this machine has no 32-bit personality")
    done = shell(site, "setarch i686 $RUN doctor --quick")
    assert (done.returncode, done.stderr) == (1, "")
    assert "error R003 this machine: another machine than the wheel was built for\n" in done.stdout


def test_data_file_that_cannot_be_read_must_be_an_error(site):
    """A look at its size does not tell."""
    path = site.bundle / "kernels.dat"
    path.write_bytes(b"kernels")
    data = {"name": path.name, "soname": None, "role": "data", "sha256": "", "size": 7, "needed": [], "runpath": []}
    site.manifest["files"].append(data)
    site.write_manifest()
    path.chmod(0)
    program = f"{WITHOUT_PRIVILEGES}\nfrom torch_fl_boot.cli import main\nprint(main(['doctor']))"
    done = interpreter(site, "-c", program)
    assert f"error R012 {path}: a file or directory of the wheel cannot be read\n" in done.stdout, done.stderr


def test_distribution_with_broken_entry_points_must_be_named(site):
    info = site.root / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_bytes(b"[torch.backends]\nx = \xff\n")
    (finding,) = [item for item in answer(site, "doctor")["findings"] if item["code"] == "R052"]
    assert finding["severity"] == "error"
    assert finding["found"].startswith(
        "the entry points of broken cannot be read: 'utf-8' codec can't decode byte 0xff "
    )
    assert finding["hint"].startswith("reinstall broken, ")


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_maps_of_a_child_must_not_depend_on_its_encoding(site, encoding):
    done = subprocess.run(
        [sys.executable, "-m", "torch_fl", "maps"],
        env={"PYTHONPATH": str(site.root), "PYTHONIOENCODING": encoding},
        cwd=site.root, capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout.decode(encoding).endswith("core: stock torch\n")


def test_child_that_dies_after_its_import_must_be_quoted(site):
    with (site.root / "torch/__init__.py").open("a") as stream:
        stream.write("import atexit, os\natexit.register(os._exit, 5)\n")
    done = command(site, "maps")
    assert (done.returncode, done.stdout) == (3, "")
    assert "`import torch` in a child process ended with exit status 5:" in done.stderr


def test_two_commands_at_once_must_both_end_well(site):
    before = snapshot(site.root)
    each = "$RUN relink & $RUN restore & $RUN status >/dev/null & $RUN doctor --quick >/dev/null &"
    wait = "for job in $(jobs -p); do wait $job || exit 9; done"
    done = shell(site, f"for n in 1 2 3; do {each} done; {wait}; $RUN restore")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert differing(before, snapshot(site.root)) == []
