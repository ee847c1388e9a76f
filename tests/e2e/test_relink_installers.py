"""Upgrade, downgrade, reinstallation and removal of torch and torch_fl by pip and uv, preloaded and relinked.

Afterwards there is a working stock torch, or nothing at all.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.soak.monitor import CORE, origins
from tests.support.fake_wheels import fake_wheels
from torch_fl_boot.plan import PRELOAD, RELINK

pytestmark = pytest.mark.slow

VERSIONS = ("2.9.0", "2.10.0", "2.11.0")


@dataclass(frozen=True)
class Environment:
    """A virtual environment and the program that changes it."""

    root: Path
    installer: str
    wheels: dict[str, Path]

    @property
    def python(self) -> Path:
        return self.root / "bin/python"

    @property
    def site(self) -> Path:
        return self.root / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"

    def run(self, *command: str | Path) -> str:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=self.root)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def change(self, action: str, *arguments: str | Path) -> None:
        """Call the installer: `install` with names of wheels, or `uninstall` with names of distributions."""
        if self.installer == "uv":
            cache = self.root.parent / "uv-cache"
            uv = (_uv(), "pip", action, "--python", self.python, "--offline", "--cache-dir", cache)
            self.run(*uv, *(arguments if action == "uninstall" else ("--no-deps", *arguments)))
            return
        pip = [self.python, "-m", "pip"] if self.installer == "bundled-pip" else [sys.executable, "-m", "pip"]
        if self.installer == "pinned-pip":
            pip += ["--python", self.python]
        options = ["-y"] if action == "uninstall" else ["--no-index", "--no-deps"]
        self.run(*pip, "--disable-pip-version-check", action, *options, *arguments)

    def install(self, name: str, *options: str) -> None:
        self.change("install", *options, self.wheels[name])

    def import_torch(self) -> tuple[str, set[str]]:
        """Import torch in a new process; return its version and where its core comes from."""
        said = self.run(
            self.python, "-c", "import torch; print(torch.__version__); print(open('/proc/self/maps').read())"
        )
        lines = [line for line in said.splitlines() if not line.startswith("torch_fl: ")]
        found = origins("\n".join(lines[1:]))
        assert set(found) == set(CORE)
        return lines[0], set(found.values())

    def leftovers(self) -> list[str]:
        """What is in site-packages of torch or torch_fl, but for bytecode and the two packages themselves."""
        lib = self.site / "torch/lib"
        inside = sorted(path.name for path in lib.iterdir()) if lib.is_dir() else []
        shipped = {*CORE, "libgomp.so.1", "libtorch_global_deps.so"}
        return [name for name in inside if name not in shipped] + [path.name for path in self.site.glob("*relinked*")]

    def traces_of(self, name: str) -> list[str]:
        return [
            str(path) for path in self.site.rglob("*") if path.is_file() and name in str(path.relative_to(self.site))
        ]


def _uv() -> str:
    found = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    assert found, "uv is part of the dependency group `tests`"
    return found


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    return fake_wheels(tmp_path_factory.mktemp("wheels"), *VERSIONS)


# What runs by default; the rest of the matrix takes minutes and is run by `pytest -m installers`.
DEFAULT = {(RELINK, "pinned-pip"), (RELINK, "uv"), (PRELOAD, "uv")}
STATES = [
    pytest.param((strategy, installer), marks=() if (strategy, installer) in DEFAULT else pytest.mark.installers)
    for strategy in (PRELOAD, RELINK)
    for installer in ("bundled-pip", "pinned-pip", "uv")
]


@pytest.fixture(params=STATES, ids="-".join)
def environment(request, wheels, tmp_path):
    """Torch 2.10.0 and torch_fl, in the state that its use under the strategy leaves."""
    strategy, installer = request.param
    venv.create(tmp_path / "env", with_pip=installer == "bundled-pip", symlinks=True)
    made = Environment(root=tmp_path / "env", installer=installer, wheels=wheels)
    made.install("torch-2.10.0")
    made.install("torch_fl-0.1.0")
    made.run("env", f"FLAGOS_CORE={strategy}", made.python, "-c", "import torch_fl")
    assert (made.site / "torch/lib/_orig_backup").is_dir() == (strategy == RELINK)
    return made


@pytest.mark.parametrize("version", ["2.9.0", "2.11.0"], ids=["downgrade", "upgrade"])
def test_other_torch_must_be_stock_and_clean(environment, version):
    environment.install(f"torch-{version}")
    assert environment.leftovers() == []
    assert environment.import_torch() == (f"{version}+cpu", {"torch"})


def test_reinstalled_torch_must_be_stock_and_clean(environment):
    environment.install("torch-2.10.0", "--reinstall" if environment.installer == "uv" else "--force-reinstall")
    assert environment.leftovers() == []
    assert environment.import_torch() == ("2.10.0+cpu", {"torch"})


def test_removed_torch_must_be_gone_and_so_must_all_that_was_added(environment):
    environment.change("uninstall", "torch")
    assert environment.traces_of("torch/") == []
    assert environment.leftovers() == []
    program = "import importlib.util; print(importlib.util.find_spec('torch'))"
    spec = environment.run(environment.python, "-c", program)
    assert spec == "None\n"
    environment.change("uninstall", "torch_fl")
    assert environment.traces_of("torch") == []


def test_removed_torch_fl_must_leave_a_stock_torch(environment):
    environment.change("uninstall", "torch_fl")
    assert environment.import_torch() == ("2.10.0+cpu", {"torch"})
    assert environment.leftovers() == []
    assert environment.traces_of("torch_fl") == []
    environment.change("uninstall", "torch")
    assert environment.traces_of("torch") == []


def test_both_removed_with_no_process_in_between_must_be_gone(environment):
    environment.change("uninstall", "torch_fl")
    environment.change("uninstall", "torch")
    assert environment.traces_of("torch") == []


def test_torch_replaced_after_torch_fl_was_removed_must_be_stock(environment):
    environment.change("uninstall", "torch_fl")
    environment.install("torch-2.11.0")
    assert environment.import_torch() == ("2.11.0+cpu", {"torch"})
    assert environment.leftovers() == []


def test_upgraded_torch_fl_must_leave_torch_importable_and_relink_again(environment):
    environment.install("torch_fl-0.2.0")
    environment.import_torch()
    environment.run("env", "FLAGOS_CORE=relink", environment.python, "-c", "import torch_fl")
    assert environment.import_torch() == ("2.10.0+cpu", {"torch_fl"})
    assert (environment.site / "torch/lib/libnew.so").is_symlink()
    assert not (environment.site / "torch/lib/libtorch_cuda.so").is_symlink()
    environment.run(environment.python, "-m", "torch_fl_boot.relink", "restore")
    assert environment.import_torch() == ("2.10.0+cpu", {"torch"})
    assert environment.leftovers() == []
