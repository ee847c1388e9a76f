"""The command line: what starts it, what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import command, interpreter
from tests.support.fake_torch import FakeSite, complete_site
from torch_fl_boot.cli import COMMANDS, EXIT_CODES, main
from torch_fl_boot.cli_start import started_as_command

CRASH = "import os\nos.abort()\n"
STARTS = "import torch_fl, torch; print(torch.registered)"


@pytest.fixture
def site(tmp_path) -> FakeSite:
    return complete_site(tmp_path)


@pytest.fixture
def crashing(site: FakeSite) -> FakeSite:
    """A site in which importing torch kills the process."""
    (site.root / "torch/__init__.py").write_text(CRASH)
    return site


@pytest.mark.parametrize(
    ("own", "is_command"),
    [
        pytest.param(["-m", "torch_fl"], True, id="plain"),
        pytest.param(["-mtorch_fl"], True, id="joined"),
        pytest.param(["-Im", "torch_fl"], True, id="cluster"),
        pytest.param(["-uBmtorch_fl"], True, id="joined-cluster"),
        pytest.param(["-X", "utf8", "-W", "error", "-m", "torch_fl"], True, id="options-with-values"),
        pytest.param(["-m", "torch_fl.__main__"], True, id="main-module"),
        pytest.param(["-m", "torch_flx"], False, id="longer-name"),
        pytest.param(["-m", "my.torch_fl"], False, id="other-package"),
        pytest.param(["-m", "pytest"], False, id="other-module"),
        pytest.param(["-X", "torch_fl"], False, id="value-of-another-option"),
    ],
)
@pytest.mark.parametrize("after", [[], ["doctor"], ["-m", "torch_fl"]], ids=["none", "command", "lookalike"])
def test_command_must_be_told_by_the_interpreters_own_arguments(own, is_command, after):
    assert started_as_command(["-m", *after], ["python3", *own, *after], "torch_fl") is is_command


@pytest.mark.parametrize(
    "argv", [["-c"], ["script.py", "-m", "torch_fl"], [""], []], ids=["c", "script", "repl", "none"]
)
def test_ordinary_program_must_never_pass_for_a_command(argv):
    assert not started_as_command(argv, ["python3", "-m", "torch_fl"], "torch_fl")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["-c", STARTS, "-m", "torch_fl"], id="c"),
        pytest.param(["-m", "program", "-m", "torch_fl"], id="module"),
        pytest.param(["{site}/program.py", "-m", "torch_fl"], id="script"),
        pytest.param(["-m", "importer"], id="package-that-imports-it-on-the-way"),
    ],
)
def test_plugin_must_start_in_an_ordinary_program_whatever_its_arguments(site, arguments):
    (site.root / "program.py").write_text(STARTS)
    (site.root / "importer").mkdir()
    (site.root / "importer/__init__.py").write_text(STARTS)
    (site.root / "importer/__main__.py").write_text("")
    done = interpreter(site, *(text.replace("{site}", str(site.root)) for text in arguments))
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_command_run_by_runpy_in_a_program_must_find_the_plugin_started(site):
    program = "import runpy, sys; sys.argv = ['x', 'status']; runpy.run_module('torch_fl', run_name='__main__')"
    done = interpreter(site, "-c", f"import torch_fl, torch; assert torch.registered\n{program}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("state      preload")


@pytest.mark.parametrize(
    "options", [["-m", "torch_fl"], ["-W", "error", "-X", "utf8", "-Bmtorch_fl"]], ids=["m", "more"]
)
@pytest.mark.parametrize("arguments", [["status"], ["doctor"], ["doctor", "--quick"]], ids="-".join)
def test_command_must_work_where_importing_torch_kills_the_process(crashing, options, arguments):
    done = interpreter(crashing, *options, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("state      preload, hook ")


def test_status_must_say_what_is_installed(site):
    done = command(site, "status", environ={"FLAGOS_HOOK": "0", "HOME": "/"})
    assert done.stdout == (
        f"state      preload, hook absent\nusable     yes\n"
        f"backend    fake, core vendor, vendor torch 2.10.0+fake1, SDK 7.1\n"
        f"torch_fl   0.1.0+fk in {site.root}/torch_fl\ntorch      2.10.0+cpu in {site.root}/torch\n"
        f"python     {sys.version.split()[0]} at {sys.executable}\n"
        f"bundle     9 files, {sum(file['size'] for file in site.manifest['files']) / 1e6:.1f} MB in {site.bundle}\n"
        f"variable   FLAGOS_HOOK=0\n"
    )


def test_status_of_a_plain_build_must_say_so(site):
    (site.root / "torch_fl/_bundle.json").unlink()
    site.bundle.rename(site.root / "elsewhere")
    done = command(site, "status", "--json")
    status = json.loads(done.stdout)
    assert (status["state"], status["core"], status["bundle"], done.returncode) == ("plain build", "stock", "", 0)


def test_status_that_is_not_usable_must_exit_1(site):
    (site.bundle / "libshm.so").unlink()
    done = command(site, "status")
    assert done.returncode == 1
    assert done.stdout.startswith("state      preload, hook absent\nusable     no\n")
    assert "error R010 " in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [["doctor", "--what"], ["nothing"], [], ["maps", "one"]],
    ids=["option", "command", "none", "pid"],
)
def test_wrong_usage_must_exit_2(site, arguments):
    done = command(site, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: torch_fl" in done.stderr


def test_help_must_list_commands_and_exit_codes(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(f"  {item.name} " in text for item in COMMANDS)
    assert all(f"  {code:<4} {meaning}\n" in text for code, meaning in EXIT_CODES.items())


def test_reader_that_stops_early_must_get_no_traceback(site):
    program = f"{sys.executable} -m torch_fl doctor --quick --libraries --json | true; exit ${{PIPESTATUS[0]}}"
    env = {"PYTHONPATH": str(site.root), "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode in {0, 3}  # true may end after everything was written


def test_script_of_the_wheel_must_be_the_same_program():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.scripts]\ntorch-fl = "torch_fl_boot.cli:main"\n' in text
