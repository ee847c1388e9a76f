"""`import torch_fl`: what is loaded afterwards, from where, and what a wrong order leads to."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch_fl  # isort: skip
import pytest
import torch

PACKAGE = Path(torch_fl.__file__).resolve().parent
TORCH_LIB = Path(torch.__file__).resolve().parent / "lib"
# Opened by torch itself by path; a stub that defines no symbol of torch.
STUB = "libtorch_global_deps.so"


def manifest() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((PACKAGE / "_bundle.json").read_text(encoding="utf-8"))
    return content


def bundled_names() -> set[str]:
    return {file["name"] for file in manifest()["files"]}


def mapped() -> dict[str, set[Path]]:
    """Mapped shared objects of this process: base name to the real paths they come from."""
    found: dict[str, set[Path]] = defaultdict(set)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.split(maxsplit=5)[5:]
        if path and ".so" in path[0]:
            found[Path(path[0]).name].add(Path(path[0]))
    return found


@pytest.mark.usefixtures("installed_wheel")
def test_plugin_must_come_from_the_environment_that_runs_the_tests():
    assert PACKAGE.is_relative_to(Path(sys.prefix).resolve())


def test_plugin_must_claim_the_name_flagos():
    assert torch._C._get_privateuse1_backend_name() == "flagos"
    assert torch.device("flagos", 0).type == "flagos"
    assert torch.device("privateuseone", 0).type == "flagos"
    assert torch.get_device_module("flagos") is torch.flagos


@pytest.mark.parametrize("name", ["libc10.so", "libtorch_cpu.so", "libtorch_python.so"])
def test_core_library_must_be_mapped_exactly_once(name):
    assert len(mapped()[name]) == 1


@pytest.mark.usefixtures("installed_wheel")
def test_every_bundled_library_that_is_mapped_must_come_from_the_bundle():
    folder = PACKAGE / manifest()["bundle_dir"]
    names = bundled_names() - {STUB}
    strangers = {path for name, paths in mapped().items() if name in names for path in paths if path.parent != folder}
    assert not strangers


@pytest.mark.usefixtures("installed_wheel")
def test_every_torch_library_must_come_from_the_bundle_or_be_torchs_own_by_plan():
    allowed = bundled_names()
    for name, paths in mapped().items():
        if not name.startswith(("libtorch", "libc10", "libcaffe2", "libshm")) or name in allowed - {STUB}:
            continue
        homes = {path.parent for path in paths}
        assert homes <= {TORCH_LIB, PACKAGE / "lib", PACKAGE / manifest()["bundle_dir"]}, name


@pytest.mark.usefixtures("installed_wheel")
def test_core_must_be_where_the_bundle_says():
    home = next(iter(mapped()["libc10.so"])).parent
    expected = {"vendor": PACKAGE / manifest()["bundle_dir"], "stock": TORCH_LIB}
    assert home == expected[torch_fl.bundle().core]


@pytest.mark.usefixtures("installed_wheel")
def test_every_library_that_the_plan_always_loads_must_be_mapped():
    steps = [step for step in manifest()["load"] if step["when"] == "always"]
    assert steps
    assert {step["name"] for step in steps} <= mapped().keys()


@pytest.mark.usefixtures("installed_wheel")
def test_bundle_info_must_agree_with_the_manifest():
    info, file = torch_fl.bundle(), manifest()
    for key in ("backend", "core", "forged", "vendor_torch"):
        assert getattr(info, key) == file[key], key
    assert info.strategy == os.environ.get("FLAGOS_CORE", file["strategy"])


@pytest.mark.usefixtures("installed_wheel")
def test_torch_version_must_stay_that_of_the_installed_distribution():
    assert torch.__version__ == importlib.metadata.version("torch")


@pytest.mark.usefixtures("installed_wheel")
def test_version_fields_must_be_the_vendors_with_its_core_and_stock_torchs_with_that():
    for field, value in manifest()["version_fields"].items():
        expected = value if torch_fl.bundle().core == "vendor" else None
        assert getattr(torch.version, field) == expected, field


def test_preload_must_leave_torch_untouched_on_disk():
    if torch_fl.bundle().strategy != "preload":
        pytest.skip("only preload promises this")
    assert not [path.name for path in TORCH_LIB.iterdir() if path.is_symlink()]


def test_one_gnu_openmp_runtime_must_be_mapped_under_its_own_name():
    assert len(mapped()["libgomp.so.1"]) <= 1


def test_importing_again_and_reloading_must_change_nothing_and_say_nothing(run_ok):
    told = run_ok(
        "import torch_fl, torch, importlib, sys\n"
        "count, name = torch.flagos.device_count(), torch._C._get_privateuse1_backend_name()\n"
        "import torch_fl\n"
        "importlib.reload(torch_fl)\n"
        "assert torch.flagos.device_count() == count and torch._C._get_privateuse1_backend_name() == name\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    assert told == "False\n", "a plain import must not pull in the compiler"


ORDERS = ["import torch, torch_fl", "import torch_fl, torch", "import torch"]


@pytest.mark.usefixtures("installed_wheel")
@pytest.mark.parametrize("statement", ORDERS)
def test_import_order_must_not_matter(run_ok, statement):
    """Where the driver alone is absent, plain torch stays on its own core; so this compares what the device says."""
    told = run_ok(
        f"{statement}\n"
        "print(torch._C._get_privateuse1_backend_name(), torch.flagos.device_count(), torch.ones(3).sum().item())\n"
    )
    assert told == f"flagos {torch.flagos.device_count()} 3.0\n"


@pytest.mark.device
@pytest.mark.usefixtures("installed_wheel")
def test_plain_torch_must_run_on_the_bundle(run_ok):
    told = run_ok("import torch, sys; print('torch_fl' in sys.modules, sys.modules['torch_fl'].bundle())")
    assert told == f"True {torch_fl.bundle()}\n"


@pytest.mark.device
def test_switched_off_autoload_must_leave_torch_on_the_bundle_without_the_device(run_ok):
    told = run_ok(
        "import os; os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '0'\n"
        "import torch, sys; print('torch_fl' in sys.modules, torch._C._get_privateuse1_backend_name())\n"
        "import torch_fl; print(torch_fl.bundle())\n"
    )
    assert told == f"False privateuseone\n{torch_fl.bundle()}\n"


def test_search_for_torch_must_map_nothing(run_ok):
    told = run_ok(
        "import importlib.util, importlib.metadata\n"
        "importlib.util.find_spec('torch'), importlib.metadata.version('torch')\n"
        "print([line for line in open('/proc/self/maps') if 'torch' in line])\n"
    )
    assert told == "[]\n"


@pytest.mark.usefixtures("installed_wheel")
def test_torch_without_the_hook_must_stay_usable_and_torch_fl_after_it_be_one_clear_error(run_ok):
    if TORCH_LIB.joinpath("libc10.so").is_symlink():
        pytest.skip("torch is relinked: it needs no hook")
    told = run_ok(
        "import os; os.environ['FLAGOS_HOOK'] = '0'\n"
        "import torch\n"
        "for attempt in range(3):\n"
        "    try:\n"
        "        import torch_fl\n"
        "    except ImportError as err:\n"
        "        print(str(err).replace(chr(10), ' '))\n"
        "print(torch.ones(3).sum().item())\n"
    )
    *messages, total = told.splitlines()
    assert total == "3.0"
    assert len(messages) == 3, told
    assert len(set(messages)) == 1, "a failed import is remembered, not tried again"
    assert "torch_fl" in messages[0]
    assert "before torch" in messages[0] or "before `import torch`" in messages[0] or "first" in messages[0]
