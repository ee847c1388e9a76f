"""The one list of backends, and how an environment chooses among them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bundle.backends import BACKENDS, CUDA, DCU, METAX, PPU, When
from bundle.selection import build_environment, cmake_settings, from_environment, target_driver_dirs


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param({"ACCELERATOR": "metax", "FLAGOS_METAX_BOXING": "1"}, METAX, id="metax"),
        pytest.param({"ACCELERATOR": "dcu", "FLAGGEMS_KERNEL": "ON"}, DCU, id="dcu"),
        pytest.param({"ACCELERATOR": "cuda", "FLAGGEMS_KERNEL": "OFF"}, CUDA, id="cuda"),
        pytest.param({"ACCELERATOR": "cuda", "PPU_SDK": "/opt/ppu"}, PPU, id="ppu-by-sdk"),
        pytest.param({"ACCELERATOR": "cuda", "PPU_HOME": "/opt/ppu"}, PPU, id="ppu-by-home"),
        pytest.param({"ACCELERATOR": "cuda", "PPU_SDK": ""}, CUDA, id="empty-is-not-set"),
        pytest.param({"ACCELERATOR": "dcu", "PPU_SDK": "/opt/ppu"}, DCU, id="ppu-sdk-beside-another"),
        pytest.param(
            {"ACCELERATOR": "metax", "FLAGOS_METAX_BOXING": "1", "METAX_KERNEL": "OFF"}, METAX, id="both-metax"
        ),
    ],
)
def test_the_environment_must_choose_the_backend(environ, expected):
    assert from_environment(environ) is expected


@pytest.mark.parametrize(
    ("environ", "start"),
    [
        pytest.param({}, "ACCELERATOR is not set", id="unset"),
        pytest.param({"ACCELERATOR": ""}, "ACCELERATOR is not set", id="empty"),
        pytest.param({"ACCELERATOR": "mtax"}, "ACCELERATOR='mtax' is unknown; expected one of cuda, dcu", id="typo"),
        pytest.param({"ACCELERATOR": "ppu"}, "ACCELERATOR='ppu' is unknown", id="a-name-is-no-accelerator"),
    ],
)
def test_no_or_an_unknown_accelerator_must_list_all_four(environ, start):
    with pytest.raises(LookupError) as caught:
        from_environment(environ)
    text = str(caught.value)
    assert text.startswith(start)
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["metax", "ppu", "dcu", "cuda"]
    assert "ACCELERATOR=metax FLAGOS_METAX_BOXING=1" in text
    assert "ACCELERATOR=cuda FLAGGEMS_KERNEL=OFF with PPU_SDK set" in text


def test_a_bare_metax_kernel_must_be_told_that_it_has_no_effect():
    with pytest.raises(LookupError) as caught:
        from_environment({"ACCELERATOR": "metax", "METAX_KERNEL": "OFF"})
    assert str(caught.value) == (
        "METAX_KERNEL='OFF' alone has no effect: FLAGOS_METAX_BOXING=1 is what sets -DMETAX_KERNEL=OFF; set that "
        "instead"
    )


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_a_backends_own_variables_must_choose_it(backend):
    told = {backend.sdk_variables[0]: "/sdk"} if backend.told_by_sdk else {}
    assert from_environment({**dict(build_environment(backend)), **told}) is backend


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_a_backends_data_must_hold_together(backend):
    names = [library.name for library in backend.libraries]
    assert len(names) == len(set(names))
    assert backend.probe in names
    assert all(not path.endswith("/") for path in backend.driver_dirs)
    assert (
        backend.bundle_dir
        == {"metax": "lib_maca", "ppu": "lib_ppu", "dcu": "lib_dcu", "cuda": "lib_cuda"}[backend.name]
    )
    assert backend.python == ("3.10" if backend is DCU else "3.12")
    assert [library.name for library in backend.libraries if library.when is When.DRIVER] in (
        ["libcaffe2_nvrtc.so"],
        [],
    )


def test_bundle_directories_must_differ():
    assert len({backend.bundle_dir for backend in BACKENDS.values()}) == len(BACKENDS)


@pytest.mark.parametrize(("name", "count"), [("metax", 9), ("ppu", 12), ("dcu", None), ("cuda", 5)])
def test_the_number_of_bundled_files_must_be_known_unless_the_vendor_decides(name, count):
    assert BACKENDS[name].bundle_files == count


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("ON", "ON"),
        ("1", "ON"),
        ("OFF", "OFF"),
        ("off", "OFF"),
        ("0", "OFF"),
        ("False", "OFF"),
        ("no", "OFF"),
        ("", "OFF"),
    ],
)
def test_flaggems_kernel_must_reach_cmake_in_any_spelling(value, expected):
    assert f'set(FLAGOS_FLAGGEMS_PYTHON "{expected}")' in cmake_settings(DCU, {"FLAGGEMS_KERNEL": value})


def test_driver_dirs_for_cmake_must_be_those_of_the_target():
    assert target_driver_dirs(METAX)[0] == "/opt/maca/lib"
    assert target_driver_dirs(METAX)[-1] == "/opt/mxdriver/lib"
    assert not [entry for entry in target_driver_dirs(DCU) if "*" in entry]
    assert target_driver_dirs(replace(CUDA, sdk_defaults=())) == ()


@pytest.mark.parametrize(
    ("environ", "code", "text"),
    [
        pytest.param({"ACCELERATOR": "dcu"}, 0, 'set(FLAGOS_BACKEND "dcu")', id="dcu"),
        pytest.param({}, 2, "torch_fl: error: ACCELERATOR is not set", id="none"),
    ],
)
def test_run_as_a_script_it_must_talk_to_cmake(environ, code, text):
    # CMake runs it in the build's own environment, where nothing but the standard library is installed.
    script = Path(__file__).parents[2] / "cmake" / "backend_settings.py"
    command = [sys.executable, "-I", "-S", str(script)]
    done = subprocess.run(
        command, env={"PATH": os.environ["PATH"], **environ}, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert text in done.stdout + done.stderr
