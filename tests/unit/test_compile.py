"""The compile stage's decisions: which variables reach the build, and how many jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bundle.backends import BACKENDS, DCU, METAX, PPU
from bundle.compile import build_jobs, cache_variables, compile_variables, environment_contents
from bundle.errors import UsageError
from bundle.selection import from_environment
from bundle.stock import StockTorch
from bundle.workspace import Workspace


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    "shell",
    [
        pytest.param({}, id="clean"),
        pytest.param({"ACCELERATOR": "dcu", "FLAGGEMS_KERNEL": "ON"}, id="other-accelerator"),
        pytest.param({"PPU_SDK": "/sdk", "PPU_HOME": "/sdk"}, id="ppu-machine"),
        pytest.param({"FLAGOS_METAX_BOXING": "1", "METAX_KERNEL": "OFF"}, id="metax-machine"),
    ],
)
def test_session_must_build_its_own_backend_whatever_the_shell_holds(name, shell):
    assert from_environment(compile_variables(BACKENDS[name], shell, sdk_root=None)) is BACKENDS[name]


def test_variables_of_the_field_must_be_set():
    metax = compile_variables(METAX, {}, sdk_root=None)
    assert (metax["ACCELERATOR"], metax["FLAGOS_METAX_BOXING"]) == ("metax", "1")
    ppu = compile_variables(PPU, {}, sdk_root=Path("/sdk"))
    assert (ppu["ACCELERATOR"], ppu["FLAGGEMS_KERNEL"], ppu["PPU_SDK"]) == ("cuda", "OFF", "/sdk")
    dcu = compile_variables(DCU, {}, sdk_root=None)
    assert (dcu["ACCELERATOR"], dcu["FLAGGEMS_KERNEL"]) == ("dcu", "ON")


def test_foreign_paths_must_not_reach_the_build():
    variables = compile_variables(DCU, {"PYTHONPATH": "/x", "LD_LIBRARY_PATH": "/y", "HOME": "/h"}, sdk_root=None)
    assert "PYTHONPATH" not in variables
    assert "LD_LIBRARY_PATH" not in variables
    assert variables["HOME"] == "/h"


def test_an_environment_must_be_made_anew_for_other_contents_and_for_nothing_else(tmp_path):
    project = tmp_path / "pyproject.toml"
    stock = StockTorch(version="2.10.0+cpu", index="", python="3.12")

    def contents(text, torch=stock):
        project.write_text(text)
        return environment_contents(torch, project)

    groups = '[dependency-groups]\ncompile = ["cmake==4.4.5"]\n'
    first = contents(groups)
    assert contents(groups + "[tool.ruff]\nline-length = 100\n") == first
    assert contents(groups.replace("4.4.5", "4.4.6")) != first
    assert contents(groups, replace(stock, version="2.11.0+cpu")) != first


def test_backends_must_share_one_cache_of_objects_by_paths_within_the_repository(tmp_path):
    metax, ppu = (
        cache_variables(Path("/env/bin/ccache"), Workspace(backend=name, repository=tmp_path), {})
        for name in ("metax", "ppu")
    )
    assert metax == ppu
    assert metax == {
        "CMAKE_C_COMPILER_LAUNCHER": "/env/bin/ccache",
        "CMAKE_CXX_COMPILER_LAUNCHER": "/env/bin/ccache",
        "CCACHE_DIR": str(tmp_path / "build" / "ccache"),
        "CCACHE_BASEDIR": str(tmp_path),
        "CCACHE_EXTRAFILES": str(tmp_path / "cmake" / "FlagosTorch.cmake"),
    }


def test_the_callers_own_cache_and_launcher_must_win(tmp_path):
    own = {"CCACHE_DIR": "/cache", "CMAKE_CXX_COMPILER_LAUNCHER": "sccache"}
    given = cache_variables(Path("/env/bin/ccache"), Workspace(backend="dcu", repository=tmp_path), own)
    assert set(given) == {"CMAKE_C_COMPILER_LAUNCHER", "CCACHE_BASEDIR", "CCACHE_EXTRAFILES"}


def test_jobs_must_follow_the_first_variable_set():
    assert build_jobs({"MAX_JOBS": "3", "CMAKE_BUILD_PARALLEL_LEVEL": "9"}) == 3
    assert build_jobs({"FLAGOS_BUILD_JOBS": "2", "MAX_JOBS": "3"}) == 2


@pytest.mark.parametrize("text", ["0", "-1", "many"])
def test_unusable_job_count_must_be_refused(text):
    with pytest.raises(UsageError) as caught:
        build_jobs({"MAX_JOBS": text})
    assert str(caught.value) == f"MAX_JOBS={text!r}; expected a whole number of at least 1"
