"""The one resolver of SDK roots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bundle.backends import BACKENDS, CUDA, DCU, METAX, PPU
from bundle.errors import SdkNotFoundError
from bundle.sdk import resolve_sdk


def make_sdk(root, backend, *dirs):
    probe = root / backend.sdk_probe
    probe.parent.mkdir(parents=True, exist_ok=True)
    probe.write_bytes(b"")
    for name in dirs:
        (root / name).mkdir(parents=True, exist_ok=True)
    return root


@pytest.mark.parametrize(
    ("backend", "variable"),
    [pytest.param(backend, name, id=name) for backend in (METAX, PPU, DCU) for name in backend.sdk_variables],
)
def test_each_variable_of_a_backend_must_be_read(tmp_path, backend, variable):
    # The field's bundle script did not read METAX_PATH, though the build did: two parts disagreed on the SDK.
    root = make_sdk(tmp_path / "sdk", backend)
    assert resolve_sdk(backend, {variable: str(root)}).root == root


@pytest.mark.parametrize("backend", [METAX, PPU, DCU], ids=lambda backend: backend.name)
def test_variables_must_win_in_their_order(tmp_path, backend):
    roots = {name: make_sdk(tmp_path / name, backend) for name in backend.sdk_variables}
    environ = {name: str(root) for name, root in roots.items()}
    for name in backend.sdk_variables:
        assert resolve_sdk(backend, environ).root == roots[name]
        del environ[name]


def test_an_explicit_root_must_be_the_only_one_tried(tmp_path):
    other = make_sdk(tmp_path / "other", METAX)
    with pytest.raises(SdkNotFoundError) as caught:
        resolve_sdk(METAX, {"METAX_PATH": str(other)}, explicit=tmp_path / "typo")
    assert str(caught.value) == (f"metax: no SDK with lib/libmcruntime.so; looked in {tmp_path}/typo (given)")


def test_no_sdk_must_list_everything_that_was_tried(tmp_path):
    with pytest.raises(SdkNotFoundError) as caught:
        resolve_sdk(PPU, {"PPU_SDK": str(tmp_path), "PPU_HOME": ""})
    assert str(caught.value) == (
        f"ppu: no SDK with CUDA_SDK/lib64/libcudart.so; looked in {tmp_path} (PPU_SDK), "
        "/usr/local/PPU_SDK (default), /usr/local/PPU-SDK (default), /opt/PPU-SDK (default)"
    )
    assert caught.value.exit_code == 4


def test_a_variable_that_names_no_sdk_must_be_passed_over_and_told(tmp_path):
    good = make_sdk(tmp_path / "good", DCU)
    sdk = resolve_sdk(DCU, {"DTK_ROOT": str(tmp_path / "bad"), "ROCM_PATH": str(good)})
    assert sdk.root == good
    assert sdk.passed_over == (f"{tmp_path}/bad (DTK_ROOT)",)


def test_driver_dirs_must_exist_while_target_dirs_are_under_the_default_root(tmp_path):
    root = make_sdk(tmp_path / "dtk", DCU, "cuda/cuda-12/lib64", "cuda/cuda-13/lib64", "hip/lib")
    sdk = resolve_sdk(DCU, {}, explicit=root)
    assert [path for path in sdk.driver_dirs if path.is_relative_to(root)] == [
        root / "cuda/cuda-12/lib64",
        root / "cuda/cuda-13/lib64",
        root / "lib",
        root / "hip/lib",
    ]
    assert sdk.target_driver_dirs == (
        "/opt/dtk/cuda/cuda-12/lib64",
        "/opt/dtk/cuda/cuda-13/lib64",
        "/opt/dtk/lib",
        "/opt/dtk/hip/lib",
        "/opt/dtk/lib64",
        "/opt/dtk/aillvm/lib",
        "/opt/dtk/llvm/lib",
        "/opt/dtk/.hyhal/rocm_smi/lib",
        "/opt/hyhal/lib",
        "/opt/mpi/lib",
        "/opt/mellanox/hcoll/lib",
    )


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_target_dirs_must_never_name_the_build_machine(tmp_path, backend):
    root = tmp_path / "sdk"
    probed = make_sdk(root, backend) if backend.sdk_probe else root
    root.mkdir(exist_ok=True)
    sdk = resolve_sdk(backend, {}, explicit=probed)
    assert not [entry for entry in sdk.target_driver_dirs if entry.startswith(str(tmp_path))]


def test_a_target_root_must_replace_the_default(tmp_path):
    sdk = resolve_sdk(METAX, {}, explicit=make_sdk(tmp_path, METAX), target_root="/opt/maca-3.3.0")
    assert sdk.target_driver_dirs[0] == "/opt/maca-3.3.0/lib"
    assert sdk.target_driver_dirs[-1] == "/opt/mxdriver/lib"


def test_cuda_must_do_without_an_sdk(tmp_path):
    sdk = resolve_sdk(replace(CUDA, sdk_defaults=(str(tmp_path / "none"),)), {"CUDA_HOME": str(tmp_path / "gone")})
    assert sdk.root is None
    assert sdk.version == ""
    assert sdk.passed_over == (f"{tmp_path}/gone (CUDA_HOME)",)


def test_an_explicit_cuda_root_must_exist(tmp_path):
    with pytest.raises(SdkNotFoundError, match=r"looked in .*/gone \(given\)"):
        resolve_sdk(CUDA, {}, explicit=tmp_path / "gone")


@pytest.mark.parametrize(
    ("name", "content", "version"),
    [
        pytest.param("version.txt", "Version:3.3.0.15\n", "3.3.0.15", id="text"),
        pytest.param("version.json", '{"cuda": {"name": "CUDA SDK", "version": "13.0.2"}}', "13.0.2", id="json"),
        pytest.param(".info/version", "26.04-rc4\n", "26.04-rc4", id="hidden"),
        pytest.param("README", "1.2.3", "", id="unrelated-file"),
    ],
)
def test_the_sdk_version_must_come_from_its_own_files(tmp_path, name, content, version):
    root = make_sdk(tmp_path / "sdk", METAX)
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(content)
    assert resolve_sdk(METAX, {}, explicit=root).version == version


def test_the_sdk_version_must_fall_back_to_the_name_behind_a_link(tmp_path):
    make_sdk(tmp_path / "dtk-26.04", DCU)
    link = tmp_path / "dtk"
    link.symlink_to("dtk-26.04")
    sdk = resolve_sdk(DCU, {}, explicit=link)
    assert sdk.version == "26.04"
    assert sdk.root == Path(tmp_path / "dtk-26.04")
