"""Verification: which wheel it takes, what its processes inherit, and what it checks. The runs are in tests/e2e."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bundle.backends import CUDA, DCU, METAX
from bundle.errors import InputNotFoundError, MalformedError, NothingBundledError, RefusedError
from bundle.stock import StockTorch
from bundle.verify import VerifyInputs, check_wheel, clean_environment, finished_wheel
from bundle.verify_checks import Facts, Installed, check_origins, doctor_errors
from bundle.workspace import Workspace
from tests.support.wheels import WheelSpec

STOCK = StockTorch(version="2.10.0+cpu", index="", python="3.12")


def workspace(root, backend=METAX, *, forged=True):
    return Workspace(backend=backend.name, forged=forged, repository=root)


def inputs(root, **changes):
    made = VerifyInputs(backend=METAX, stock=STOCK, workspace=workspace(root), wheel=root / "w.whl")
    return replace(made, **changes)


@pytest.mark.parametrize("backend", [METAX, CUDA], ids=lambda backend: backend.name)
def test_a_wheel_of_the_backend_must_be_taken(tmp_path, backend):
    path = WheelSpec(backend=backend).write(tmp_path)
    before = path.read_bytes()
    check_wheel(path, workspace(tmp_path, backend))
    assert path.read_bytes() == before


def test_another_backends_wheel_must_be_refused_before_anything_is_installed(tmp_path):
    path = WheelSpec(backend=DCU).write(tmp_path)
    with pytest.raises(RefusedError) as caught:
        check_wheel(path, workspace(tmp_path))
    assert str(caught.value) == (f"{path.name} is of backend dcu (forged vendor); expected metax (forged vendor)")
    assert caught.value.hint == "name it with --backend dcu --forged"


def test_a_forged_wheel_must_not_pass_for_a_real_one(tmp_path):
    path = WheelSpec().write(tmp_path)
    with pytest.raises(RefusedError, match=r"of backend metax \(forged vendor\); expected metax \(real vendor\)"):
        check_wheel(path, workspace(tmp_path, forged=False))


def test_a_thin_wheel_must_name_the_stages_that_were_skipped(tmp_path):
    path = WheelSpec().write_thin(tmp_path)
    with pytest.raises(NothingBundledError, match="the bundle and repack stages were skipped") as caught:
        check_wheel(path, workspace(tmp_path))
    assert caught.value.hint == "run `inv wheel --backend metax` first"


def test_a_file_that_is_no_wheel_or_is_not_there_must_be_told_apart(tmp_path):
    with pytest.raises(InputNotFoundError, match="no wheel at"):
        check_wheel(tmp_path / "gone.whl", workspace(tmp_path))
    (tmp_path / "text.whl").write_text("no zip")
    with pytest.raises(MalformedError, match="not a wheel"):
        check_wheel(tmp_path / "text.whl", workspace(tmp_path))


@pytest.mark.parametrize(
    ("backend", "forged", "name"),
    [
        pytest.param(METAX, False, "torch_fl-0.1.0+metax-cp312-cp312-linux_x86_64.whl", id="label"),
        pytest.param(METAX, True, "forged/torch_fl-0.1.0+metax.forged-cp312-cp312-linux_x86_64.whl", id="forged"),
        pytest.param(CUDA, False, "torch_fl-0.1.0-cp312-cp312-linux_x86_64.whl", id="no-label"),
        pytest.param(CUDA, True, "forged/torch_fl-0.1.0+forged-cp312-cp312-linux_x86_64.whl", id="no-label-forged"),
    ],
)
def test_the_backends_own_wheel_must_be_found_among_all(tmp_path, backend, forged, name):
    every = ("metax", "dtk", "ppu", "")
    for kind, extra in (("", ""), ("forged/", "forged")):
        for label in every:
            local = ".".join(filter(None, (label, extra)))
            path = (
                tmp_path / "dist" / f"{kind}torch_fl-0.1.0{f'+{local}' if local else ''}-cp312-cp312-linux_x86_64.whl"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    assert finished_wheel(workspace(tmp_path, backend, forged=forged), backend) == tmp_path / "dist" / name


def test_no_wheel_must_name_the_command_to_run(tmp_path):
    with pytest.raises(InputNotFoundError, match=r"metax: 0 wheels in .*, expected one$") as caught:
        finished_wheel(workspace(tmp_path), METAX)
    assert caught.value.hint == "run `inv wheel --backend metax` first, or name the wheel"


def test_several_wheels_must_be_listed_and_none_chosen(tmp_path):
    names = [f"torch_fl-0.1.0+metax-{tag}-{tag}-linux_x86_64.whl" for tag in ("cp311", "cp312")]
    for name in names:
        (tmp_path / "dist").mkdir(exist_ok=True)
        (tmp_path / "dist" / name).touch()
    with pytest.raises(InputNotFoundError) as caught:
        finished_wheel(workspace(tmp_path, forged=False), METAX)
    assert str(caught.value).endswith(f"expected one: {', '.join(names)}")
    assert caught.value.hint == "name the wheel"


def test_paths_and_build_variables_of_the_caller_must_not_reach_the_tests(tmp_path):
    shell = {
        "ACCELERATOR": "dcu",
        "CUDA_VISIBLE_DEVICES": "1",
        "FLAGGEMS_KERNEL": "ON",
        "FLAGOS_CORE": "preload",
        "GEMS_VENDOR": "mine",
        "HOME": "/h",
        "LD_LIBRARY_PATH": "/x",
        "LD_PRELOAD": "/x.so",
        "METAX_KERNEL": "OFF",
        "PYTEST_ADDOPTS": "-x",
        "PYTHONPATH": "/repository",
        "TORCH_LOGS": "+all",
        "VIRTUAL_ENV": "/v",
    }
    kept = clean_environment(shell, inputs(tmp_path))
    assert {key: kept[key] for key in shell if key in kept} == {"CUDA_VISIBLE_DEVICES": "1", "HOME": "/h"}
    assert "LD_LIBRARY_PATH" not in kept


def test_a_forged_vendors_driver_must_stand_where_a_sourced_sdk_puts_it(tmp_path):
    kept = clean_environment({"LD_LIBRARY_PATH": "/x"}, inputs(tmp_path, driver_dirs=(Path("/a"), Path("/b"))))
    assert kept["LD_LIBRARY_PATH"] == "/a:/b"


def test_workers_must_share_the_processors(tmp_path):
    many = clean_environment({}, inputs(tmp_path, workers=1000))
    assert (many["OMP_NUM_THREADS"], many["MKL_NUM_THREADS"]) == ("1", "1")


@pytest.fixture
def installed(tmp_path):
    """Return a wheel's package in a made-up site-packages; nothing of it is run."""
    package = tmp_path / "torch_fl"
    (package / "lib").mkdir(parents=True)
    (package / "lib" / "libtorch_fl.so").touch()
    manifest = WheelSpec(backend=CUDA).bundle_manifest()
    return Installed(python=tmp_path / "python", package=package, manifest=manifest, environ={}, folder=tmp_path)


def maps_of(installed, **changes):
    site = installed.package.parent
    right = {
        "libc.so.6": "/lib/libc.so.6",
        "libtorch_cpu.so": f"{site}/torch/lib/libtorch_cpu.so",
        "libtorch_cuda.so": f"{site}/torch_fl/lib_cuda/libtorch_cuda.so",
        "libtorch_fl.so": f"{site}/torch_fl/lib/libtorch_fl.so",
    }
    changed = {name: tuple(path.format(site=site) for path in paths) for name, paths in changes.items()}
    maps = {name: (path,) for name, path in right.items()} | changed
    return Facts(
        devices=0, torch="2.10.0", strategy="preload", maps={key: paths for key, paths in maps.items() if paths}
    )


def test_libraries_mapped_once_from_where_they_belong_must_be_no_problem(installed):
    twice = {"libtorch_global_deps.so": ("/a/libtorch_global_deps.so", "/b/libtorch_global_deps.so")}
    assert check_origins(maps_of(installed, **twice), installed) == ()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"libtorch_cuda.so": ("/elsewhere/libtorch_cuda.so",)}, "/elsewhere/libtorch_cuda.so", id="place"),
        pytest.param(
            {"libtorch_cpu.so": ("{site}/torch/lib/libtorch_cpu.so", "/b/libtorch_cpu.so")},
            "/torch/lib/libtorch_cpu.so, /b/libtorch_cpu.so; expected ",
            id="twice",
        ),
        pytest.param({"libc10-1a2b3c4d.so": ("/t/libc10-1a2b3c4d.so",)}, "libc10-1a2b3c4d.so is mapped", id="mangled"),
        pytest.param({"libtorch_cpu.so": ()}, "no libtorch_cpu.so is mapped at all", id="no-core"),
    ],
)
def test_a_core_library_from_elsewhere_must_be_named(installed, changes, problem):
    (found,) = check_origins(maps_of(installed, **changes), installed)
    assert problem in found


def test_errors_of_the_doctor_must_be_problems_and_warnings_none():
    findings = [
        {"code": "R020", "severity": "error", "where": "libx.so", "found": "nowhere"},
        {"code": "R041", "severity": "warning", "where": "libx.so", "found": "0 devices"},
    ]
    assert doctor_errors(json.dumps({"findings": findings}), "") == ("doctor: R020 libx.so: nowhere",)


@pytest.mark.parametrize("answer", ["", "[]", "{}", "nonsense"])
def test_doctor_without_an_answer_must_be_a_problem(answer):
    assert doctor_errors(answer, "Traceback: boom\n") == ("doctor: no answer: Traceback: boom",)


def test_strategy_must_reach_the_tests_whatever_the_caller_has_set(tmp_path):
    environ = {"FLAGOS_CORE": "preload"}
    assert clean_environment(environ, inputs(tmp_path, strategy="relink"))["FLAGOS_CORE"] == "relink"
    assert "FLAGOS_CORE" not in clean_environment(environ, inputs(tmp_path))
