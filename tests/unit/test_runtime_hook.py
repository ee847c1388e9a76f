"""Plain `import torch` with the wheel's hook, in a virtual environment of tiny libraries."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from tests.support.fake_torch import CORE, THEN_TORCH, TRY, hooked_site
from tests.unit.test_runtime_faults import FAULTS

# Where the core comes from, whether the plugin is registered, and what `import torch_fl` says afterwards.
STATE = """
import json, pathlib, sys, torch
def origin(name):
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    found = {line.split()[-1] for line in lines if line.endswith("/" + name)}
    return sorted(path.split("site-packages/")[-1].split("/")[0] for path in found)
print(json.dumps({
    "c10": origin("libc10.so"), "python": origin("libtorch_python.so"), "cuda": origin("libtorch_cuda.so"),
    "registered": getattr(torch, "registered", 0), "plugin": "torch_fl" in sys.modules, "hip": torch.version.hip,
}))
"""
ON_BUNDLE = {
    "c10": ["torch_fl"], "python": ["torch_fl"], "cuda": ["torch_fl"], "registered": 1, "plugin": True, "hip": "6.3.0",
}  # fmt: skip
STOCK = {"c10": ["torch"], "python": ["torch"], "cuda": [], "registered": 0, "plugin": False, "hip": None}
WARNING = "torch_fl: warning: torch runs without flagos, on its own libraries: "
NO_PLUGIN = "torch_fl: warning: torch runs without flagos: "


def state(site, *, before="", options=(), **environ):
    done = site.run(before + STATE, environ=environ, options=options)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "first", [pytest.param("import torch\n", id="torch-first"), pytest.param("import torch_fl\n", id="torch_fl-first")]
)
def test_both_orders_must_run_on_the_bundle_and_register_once(tmp_path, first):
    assert state(hooked_site(tmp_path), before=first + "import torch_fl, torch\n") == ON_BUNDLE


def test_stock_core_must_stay_stock_with_the_bundle_beside_it(tmp_path):
    expected = {**ON_BUNDLE, "c10": ["torch"], "python": ["torch"], "hip": None}
    assert state(hooked_site(tmp_path, core="stock")) == expected


def test_switched_off_hook_must_leave_torch_alone(tmp_path):
    assert state(hooked_site(tmp_path), FLAGOS_HOOK="0") == STOCK


def test_switch_must_count_when_it_is_set_in_the_program(tmp_path):
    assert state(hooked_site(tmp_path), before="import os; os.environ['FLAGOS_HOOK'] = '0'\n") == STOCK


def test_torch_fl_after_a_torch_without_the_hook_must_be_one_clear_error(tmp_path):
    done = hooked_site(tmp_path).run("import torch\n" + TRY * 2, environ={"FLAGOS_HOOK": "0"})
    names = [line for line in done.stdout.splitlines() if line.endswith("Error")]
    assert (names, done.stderr) == (["ImportOrderError"] * 2, "")


def test_torch_fl_first_must_work_without_the_hook(tmp_path):
    assert state(hooked_site(tmp_path), before="import torch_fl\n", FLAGOS_HOOK="0") == ON_BUNDLE


def test_switched_off_autoload_must_still_run_torch_on_the_bundle(tmp_path):
    expected = {**ON_BUNDLE, "registered": 0, "plugin": False}
    assert state(hooked_site(tmp_path), TORCH_DEVICE_BACKEND_AUTOLOAD="0") == expected


def test_torch_fl_must_work_after_a_torch_without_autoload(tmp_path):
    before = "import torch, torch_fl\n"
    assert state(hooked_site(tmp_path), before=before, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == ON_BUNDLE


def test_plain_build_must_run_on_the_torch_that_is_there(tmp_path):
    site = hooked_site(tmp_path)
    (site.root / "torch_fl/_bundle.json").unlink()
    shutil.rmtree(site.bundle)
    assert state(site) == {**STOCK, "registered": 1, "plugin": True}


def test_plugin_that_does_not_load_must_leave_torch_importable(tmp_path):
    """Torch fails its import when an entry point raises."""
    site = hooked_site(tmp_path)
    (site.root / "torch_fl/flagos/__init__.py").write_text("raise ImportError('libtorch_fl.so: no such file')")
    done = site.run(STATE + TRY)
    assert json.loads(done.stdout.splitlines()[0]) == {**ON_BUNDLE, "registered": 0, "plugin": False}
    assert done.stdout.splitlines()[1] == "PluginImportError"
    assert done.stderr.startswith(
        f"{NO_PLUGIN}fake: the plugin's own libraries could not be loaded: libtorch_fl.so: no"
    )
    assert done.stderr.count("\n") == 1


def test_search_for_torch_must_map_nothing_and_find_the_stock_spec(tmp_path):
    look = """
import importlib.util, pkgutil
spec = importlib.util.find_spec("torch")
print(type(spec.loader), spec.loader.path, spec.origin, spec.cached, spec.submodule_search_locations)
print(spec.loader.get_source("torch") != "", spec.loader.is_package("torch"), pkgutil.find_loader("torch").path)
print([line for line in open("/proc/self/maps") if "torch" in line])
"""
    site = hooked_site(tmp_path)
    options = ("-W", "ignore")
    found, stock = site.run(look, options=options), site.run(look, environ={"FLAGOS_HOOK": "0"}, options=options)
    assert (found.stdout, found.stderr) == (stock.stdout, "")
    assert found.stdout.endswith("\n[]\n")


def test_imported_torch_must_look_like_the_stock_one(tmp_path):
    look = """
import importlib, importlib.resources, inspect, pkgutil, torch
print(vars(torch.__loader__), torch.__loader__ is torch.__spec__.loader, torch.__spec__, torch.__file__, torch.__path__)
print(inspect.getsource(torch), inspect.getfile(torch), pkgutil.get_data("torch", "version.py"))
print(sorted(entry.name for entry in importlib.resources.files("torch").iterdir()))
print([module.name for module in pkgutil.iter_modules(torch.__path__)], torch.__spec__.loader_state)
print(importlib.reload(torch) is torch, vars(torch.__loader__))
"""
    site, off = hooked_site(tmp_path), {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    hooked, stock = site.run(look, environ=off), site.run(look, environ={**off, "FLAGOS_HOOK": "0"})
    addresses = "object at 0x"
    assert hooked.stderr == stock.stderr == ""
    assert [line.split(addresses)[0] for line in hooked.stdout.splitlines()] == [
        line.split(addresses)[0] for line in stock.stdout.splitlines()
    ]


@pytest.mark.parametrize("fault", FAULTS)
def test_refused_bundle_must_give_stock_torch_and_one_line(tmp_path, fault):
    site = hooked_site(tmp_path)
    FAULTS[fault].damage(site)
    done = site.run("import torch\n" + TRY + THEN_TORCH + STATE)
    refused, _, then = done.stdout.partition("---\n")
    # The executable of a virtual environment is its own.
    expected = FAULTS[fault].text(site).replace(sys.executable, str(site.python))
    assert refused == expected
    assert then.startswith("2.10.0+cpu\n")
    assert json.loads(then.splitlines()[-1]) == STOCK
    what, _, hint = expected.split("\n", 1)[1].strip().rpartition("\nhint: ")
    # Without a manifest it looks like a plain build until the plugin itself is loaded.
    prefix = NO_PLUGIN if fault == "manifest-gone" else WARNING
    assert done.stderr == f"{prefix}{' '.join(what.split())}; hint: {hint}\n"


def test_refusal_that_torch_fl_has_raised_must_not_be_told_again(tmp_path):
    site = hooked_site(tmp_path)
    FAULTS["file-missing"].damage(site)
    done = site.run(TRY + THEN_TORCH)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == FAULTS["file-missing"].text(site) + "---\n2.10.0+cpu\n"


def test_mistake_of_ours_must_not_take_torch_away(tmp_path):
    site = hooked_site(tmp_path)
    with (site.root / "torch_fl_boot/plan.py").open("a") as stream:
        stream.write("\ndef choose_strategy(*_): raise ZeroDivisionError('mistake')\n")
    shutil.rmtree(site.root / "torch_fl_boot/__pycache__")
    done = site.run(STATE)
    assert json.loads(done.stdout) == STOCK
    assert done.stderr == f"{WARNING}ZeroDivisionError: mistake; hint: this is a fault of torch_fl, please report it\n"


def test_runtime_that_was_uninstalled_meanwhile_must_not_take_torch_away(tmp_path):
    """A notebook that lives on while the wheel is uninstalled: the hook is in its memory alone."""
    site = hooked_site(tmp_path)
    gone = "import shutil, pathlib, torch_fl_boot\nhere = pathlib.Path(torch_fl_boot.__file__).parent\n"
    gone += "[shutil.rmtree(path) for path in (here, *here.parent.glob('torch_fl*')) if path.is_dir()]\n"
    gone += "import importlib; importlib.invalidate_caches()\n"
    assert state(site, before=gone) == STOCK


def test_second_core_that_torch_brings_must_fail_the_import_of_torch(tmp_path):
    site = hooked_site(tmp_path)
    copy = site.library(site.root / "torch.libs/libc10-0123abcd.so")
    with (site.root / "torch/__init__.py").open("a") as stream:
        stream.write(f"ctypes.CDLL({str(copy)!r})\n")
    environ = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = site.run(TRY.replace("torch_fl", "torch") * 2 + TRY, environ=environ)
    text = (
        "MixedCoreError\ntorch runs on a mixture of libraries:\n"
        f"  libc10.so is mapped from {copy}, {site.bundle}/libc10.so; expected {site.bundle}/libc10.so\n"
        "hint: unset LD_PRELOAD and LD_LIBRARY_PATH entries that hold a torch, then start a new process\n"
    )
    assert (done.stdout, done.stderr) == (text * 3, "")


def test_preload_that_left_something_behind_must_close_torch_off(tmp_path):
    site = hooked_site(tmp_path)
    site.write_bundle({**CORE, "libmagma.so": ("libmkl.so.1",)})
    hold = f"import ctypes; ctypes.CDLL('{site.bundle}/libc10.so')\n"
    done = site.run(hold + TRY.replace("torch_fl", "torch") * 2 + TRY)
    assert [line for line in done.stdout.splitlines() if line.endswith("Error")] == ["LeftoverError"] * 3
    assert done.stderr == ""


def test_libtorch_brought_by_an_embedding_program_must_be_kept_with_one_line(tmp_path):
    site = hooked_site(tmp_path)
    done = site.run(f"import ctypes; ctypes.CDLL('{site.torch_lib}/libtorch_cpu.so')\n{STATE}")
    assert json.loads(done.stdout) == STOCK
    assert done.stderr.startswith(
        f"{WARNING}torch_fl must be imported before torch: {site.torch_lib}/libc10.so is loaded in this process; hint: "
    )
    assert done.stderr.count("\n") == 1


def test_torch_whose_libraries_are_links_into_the_bundle_must_just_work(tmp_path):
    """The relinked state: known by inode, whatever path it was opened by."""
    site = hooked_site(tmp_path)
    for name in CORE:
        (site.torch_lib / name).unlink()
        (site.torch_lib / name).symlink_to(site.bundle / name)
    assert state(site) == ON_BUNDLE
    alone = state(site, FLAGOS_HOOK="0", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert alone == {**STOCK, "c10": ["torch_fl"], "python": ["torch_fl"]}
    late = state(site, before="import torch, torch_fl\n", FLAGOS_HOOK="0")
    assert late == ON_BUNDLE
