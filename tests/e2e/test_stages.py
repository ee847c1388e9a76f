"""The stages as a release engineer starts them: what each refuses, what a kill leaves, and what it must not touch."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from bundle.backends import BACKENDS
from bundle.bundling import load_bundle
from bundle.errors import BundleError
from tests.e2e.pipeline import REPOSITORY, Repository, copy_repository, link_tree, rewrite

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

COMPILED, BUNDLED = "metax-forged/compile", "metax-forged/bundle"
SHARED = ("forge/metax", "envs")


@pytest.fixture
def repository(tmp_path, built_wheel):
    """Return a function that copies the sources and the named outputs of a finished metax build."""
    built_wheel("metax")
    return lambda *outputs: copy_repository(tmp_path / "repository", built=outputs)


def folder_of(repository: Repository) -> Path:
    return repository.root / "build" / BUNDLED


def test_repack_without_a_compile_must_name_the_missing_stage(repository):
    result = repository(BUNDLED).run("repack", "--backend", "metax", "--forged")
    assert result.code == 3
    assert "metax: no thin wheel in" in result.err
    assert "hint: run `inv compile --backend metax --forged` first" in result.err


def test_repack_of_two_thin_wheels_must_name_both_and_choose_none(repository):
    made = repository(COMPILED)
    [wheel] = (made.root / "build" / COMPILED).glob("*.whl")
    other = wheel.with_name(wheel.name.replace("torch_fl-", "torch_fl-9"))
    other.write_bytes(wheel.read_bytes())
    result = made.run("repack", "--backend", "metax", "--forged")
    assert result.code == 3
    assert f"metax: 2 ({wheel.name}, {other.name}) thin wheels in" in result.err


def test_repack_right_after_compile_must_not_give_a_wheel(repository):
    made = repository(COMPILED)
    result = made.run("repack", "--backend", "metax", "--forged")
    assert result.code == 3
    assert "hint: run `inv bundle --backend metax --forged` first" in result.err
    assert not list(made.root.glob("dist/**/*.whl"))


def test_empty_bundle_must_not_give_a_wheel(repository):
    made = repository(COMPILED)
    folder_of(made).mkdir(parents=True)
    result = made.run("repack", "--backend", "metax", "--forged")
    assert result.code == 3
    assert not list(made.root.glob("dist/**/*.whl"))


def test_bundle_of_another_backend_must_be_refused(repository, built_wheel):
    built_wheel("cuda")
    made = repository(COMPILED)
    link_tree(REPOSITORY / "build" / "cuda-forged" / "bundle", folder_of(made))
    result = made.run("repack", "--backend", "metax", "--forged")
    assert result.code in {3, 9}
    assert "cuda" in result.err
    assert "metax" in result.err
    assert not list(made.root.glob("dist/**/*.whl"))


def test_altered_library_must_be_named(repository):
    made = repository(COMPILED, BUNDLED)
    library = folder_of(made) / "lib_maca" / "libtorch.so"
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    rewrite(library, bytes(data))
    result = made.run("repack", "--backend", "metax", "--forged")
    assert result.code == 9
    assert "bundled files differ from their manifest: libtorch.so" in result.err


def test_leftover_of_another_backend_must_be_refused(repository):
    made = repository(COMPILED, BUNDLED)
    (folder_of(made) / "lib_maca" / "libtorch_hip.so").write_bytes(b"left over")
    result = made.run("repack", "--backend", "metax", "--forged")
    assert result.code == 9
    assert "libtorch_hip.so" in result.err


def test_new_bundle_must_sweep_out_a_leftover(repository):
    made = repository(COMPILED, BUNDLED, *SHARED)
    (folder_of(made) / "lib_maca" / "libtorch_hip.so").write_bytes(b"left over")
    (folder_of(made) / "lib_dcu").mkdir()
    result = made.run("bundle", "--backend", "metax", "--forged")
    assert result.code == 0, result.err
    assert sorted(path.name for path in folder_of(made).iterdir()) == ["_bundle.json", "lib_maca"]
    assert len(list((folder_of(made) / "lib_maca").iterdir())) == 9


def test_equal_inputs_must_give_equal_wheels(repository):
    made = repository(COMPILED, BUNDLED)
    before = os.umask(0o077)
    try:
        result = made.run("repack", "--backend", "metax", "--forged", environ={"LC_ALL": "C", "SOURCE_DATE_EPOCH": "1"})
    finally:
        os.umask(before)
    assert result.code == 0, result.err
    (again,) = made.root.glob("dist/forged/*.whl")
    first = REPOSITORY / "dist" / "forged" / again.name
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(first.read_bytes()).digest()


def wait_for_output(tool: subprocess.Popen[bytes], folder: Path) -> None:
    """Return once the stage has begun to write below its folder, or has ended."""
    before = set(folder.iterdir()) if folder.exists() else set()
    while tool.poll() is None and (not folder.exists() or not set(folder.iterdir()) - before):
        time.sleep(0.01)


def outcomes(log: Path) -> Counter[str]:
    """Count what ccache said of each compilation of this project; CMake's own trials are not counted."""
    found: Counter[str] = Counter()
    source = ""
    for line in log.read_text().splitlines():
        if line.startswith("# "):
            source = line
        elif line in {"cache_miss", "direct_cache_hit", "preprocessed_cache_hit"} and "CMakeC" not in source:
            found[line] += 1
    return found


def test_second_backend_must_take_what_it_shares_from_the_cache(repository, tmp_path, monkeypatch):
    for name in os.environ:
        if name.startswith("CCACHE_"):
            monkeypatch.delenv(name)
    made = repository("envs")
    # Torch's headers take minutes; the flags, folders and units of the real build are what decides.
    for source in (made.root / "torch_fl" / "csrc").rglob("*.cpp"):
        if source.parent.name != "runtime":
            source.write_text("")
    found = []
    for backend in ("metax", "ppu"):
        log = tmp_path / f"{backend}.log"
        result = made.run("compile", "--backend", backend, "--forged", environ={"CCACHE_STATSLOG": str(log)})
        assert result.code == 0, result.err
        found.append(outcomes(log))
    first, second = found
    assert set(first) == {"cache_miss"}
    # The bindings are told the backend's libraries: empty ones are the same only once they are preprocessed.
    assert second == Counter(direct_cache_hit=first["cache_miss"] - 1, preprocessed_cache_hit=1)


def vendor_state(root: Path) -> list[tuple[str, int, int, int]]:
    return [
        (str(path.relative_to(root)), path.lstat().st_mode, path.lstat().st_mtime_ns, path.lstat().st_size)
        for path in sorted(root.rglob("*"))
    ]


def test_killed_bundle_must_leave_nothing_half_done(repository):
    made = repository(*SHARED)
    vendor = made.root / "build" / "forge" / "metax"
    before = vendor_state(vendor)
    for delay in (0.0, 0.3, 1.0, 2.0):
        tool = made.start("bundle", "--backend", "metax", "--forged")
        wait_for_output(tool, folder_of(made).parent)
        time.sleep(delay)
        tool.kill()
        tool.wait()
        if folder_of(made).exists():
            load_bundle(folder_of(made), backend="metax")
    result = made.run("bundle", "--backend", "metax", "--forged")
    assert result.code == 0, result.err
    assert len(load_bundle(folder_of(made), backend="metax").files) == 9
    assert [path.name for path in folder_of(made).parent.iterdir() if "partial" in path.name] == []
    assert vendor_state(vendor) == before


def test_terminated_bundle_must_say_so_and_stop(repository):
    made = repository(*SHARED)
    tool = made.start("bundle", "--backend", "metax", "--forged")
    time.sleep(2)
    tool.send_signal(signal.SIGTERM)
    assert tool.wait(timeout=120) == 143
    assert not folder_of(made).exists()


def test_vendor_of_another_base_version_must_be_refused(repository):
    made = repository(*SHARED)
    vendor = made.root / "build" / "forge" / "metax" / "site-packages" / "torch"
    text = (vendor / "version.py").read_text()
    stock = text.split("__version__ = '")[1].split("'")[0]
    rewrite(vendor / "version.py", text.replace(stock, "2.9.1+metax").encode())
    sdk = made.root / "build" / "forge" / "metax" / "sdk"
    built = next((made.root / "build" / "envs").glob("cp*-torch*/.ready")).parent.name
    python, version = built.removeprefix("cp").split("-torch")
    result = made.run(
        *("plan", "--backend", "metax", "--python", f"3.{python[1:]}"),
        *("--vendor-torch", str(vendor), "--sdk-root", str(sdk)),
        environ={"TORCH_FL_STOCK_TORCH": version, "TORCH_FL_STOCK_INDEX": ""},
    )
    assert result.code == 9, result.err
    assert "metax: vendor torch is 2.9.1" in result.err
    assert "the base versions must be equal" in result.err


def test_unknown_backend_must_list_the_four():
    result = Repository(root=REPOSITORY).run("wheel", "--backend", "mtax")
    assert result.code == 2
    assert "unknown backend 'mtax'" in result.err
    for name in BACKENDS:
        assert f"  {name}" in result.err


def test_build_without_accelerator_must_stop_and_list_the_four(built_wheel, tmp_path):
    built_wheel("metax")
    python = next((REPOSITORY / "build" / "envs").glob("cp*-torch*/.ready")).parent / "bin" / "python"
    made = copy_repository(tmp_path / "repository")
    environ = {key: value for key, value in os.environ.items() if key not in {"ACCELERATOR", "PYTHONPATH"}}
    environ["PATH"] = f"{python.parent}:{environ['PATH']}"
    for accelerator, words in (("", "ACCELERATOR is not set"), ("tpu", "ACCELERATOR='tpu' is unknown")):
        script = (
            "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-m', 'pip', 'wheel', '.', '--no-deps', "
            "'--no-build-isolation', '-w', 'out']).returncode)"
        )
        done = _run(python, script, made.root, {**environ, "ACCELERATOR": accelerator})
        assert done.returncode != 0
        assert words in done.stdout
        for backend in BACKENDS.values():
            assert backend.title in done.stdout
    assert not list(made.root.glob("out/*.whl"))


def _run(python, script, cwd, environ):
    return subprocess.run(
        [python, "-c", script],
        cwd=cwd,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def test_exit_codes_of_refusals_must_be_unique_per_kind():
    kinds = {cls.exit_code for cls in BundleError.__subclasses__()}
    assert len(kinds) == len(BundleError.__subclasses__())
    assert sys.maxsize not in kinds
