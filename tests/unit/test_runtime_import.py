"""`import torch_fl` in a site-packages of tiny libraries: the real loader, in processes of their own."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.fake_torch import CORE, DEVICE, NVRTC, FakeSite, complete_site

if TYPE_CHECKING:
    from pathlib import Path

REPORT = """
import json, os, sys
import torch_fl, torch
parts = ("torch", "c10", "shm", "nvrtc")
mapped = {name: [path.removeprefix(sys.path[1] + "/") for path in paths]
          for name, paths in torch_fl.mapped_libraries().items() if any(part in name for part in parts)}
info = torch_fl.bundle()
print(json.dumps({"mapped": mapped, "loaded": info.loaded, "skipped": [vars(entry) for entry in info.skipped],
                  "hip": torch.version.hip, "rocm": torch.version.rocm, "cuda": torch.version.cuda,
                  "gems": os.environ.get("GEMS_VENDOR"), "strategy": info.strategy, "core": info.core,
                  "files": info.files, "version": torch_fl.__version__, "torch": torch.__version__,
                  "registered": torch.registered}))
"""


def report(site: FakeSite, *, before: str = "", **environ: str) -> dict[str, Any]:
    done = site.run(before + REPORT, environ=environ)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def origins(result: dict[str, Any]) -> dict[str, str]:
    """Name -> top folder; a library that is mapped twice fails here, but for torch's own global_deps stub."""
    found = {}
    for name, paths in result["mapped"].items():
        if name != "libtorch_global_deps.so":
            assert len(paths) == 1, paths
            found[name] = paths[0].split("/")[0]
    return found


def test_vendor_core_must_be_mapped_from_the_bundle_alone(tmp_path):
    result = report(complete_site(tmp_path))
    assert origins(result) == dict.fromkeys(set(CORE) - {"libtorch_global_deps.so"} | {*DEVICE, *NVRTC}, "torch_fl")
    assert result["loaded"] == ["libgomp.so.1", *CORE, *DEVICE, *NVRTC]
    assert result["registered"] == 1


def test_stock_core_must_stay_stock_with_the_bundle_beside_it(tmp_path):
    result = report(complete_site(tmp_path, core="stock"))
    stock = dict.fromkeys(set(CORE) - {"libtorch_global_deps.so"}, "torch")
    assert origins(result) == stock | dict.fromkeys({*DEVICE, *NVRTC}, "torch_fl")
    assert (result["hip"], result["core"]) == (None, "stock")


def test_plain_build_must_run_on_the_torch_that_is_there(tmp_path):
    site = complete_site(tmp_path)
    (site.root / "torch_fl/_bundle.json").unlink()
    shutil.rmtree(site.bundle)
    result = report(site)
    assert set(origins(result).values()) == {"torch"}
    assert (result["strategy"], result["files"], result["version"], result["gems"]) == ("none", [], "0.1.0", None)
    assert result["registered"] == 1


def test_library_without_its_driver_must_be_left_out_and_named(tmp_path):
    result = report(complete_site(tmp_path, driver=False))
    assert "libcaffe2_nvrtc.so" not in result["mapped"]
    assert result["skipped"] == [
        {
            "name": "libcaffe2_nvrtc.so",
            "reason": "libdrivercore.so.1: cannot open shared object file: No such file or directory",
        }
    ]


def test_library_whose_driver_is_itself_incomplete_must_be_left_out(tmp_path):
    site = complete_site(tmp_path)
    site.write_driver("libdrivercore.so.1", needed=("libdriverdeep.so.2",))
    skipped = report(site)["skipped"]
    assert [entry["name"] for entry in skipped] == ["libcaffe2_nvrtc.so"]
    assert skipped[0]["reason"].startswith("libdriverdeep.so.2: cannot open")


def test_bundle_without_libshm_must_use_the_stock_one(tmp_path):
    """Defect of the field: a vendor image with eight libraries lacks libshm.so, which libtorch_python needs."""
    site = complete_site(tmp_path)
    site.write_bundle({name: needed for name, needed in {**CORE, **DEVICE}.items() if name != "libshm.so"})
    (site.bundle / "libshm.so").unlink()
    result = report(site)
    assert origins(result)["libshm.so"] == "torch"
    assert set(origins(result).values()) == {"torch", "torch_fl"}
    assert result["loaded"][:2] == ["libgomp.so.1", "libshm.so"]


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({"FLAGOS_METAX_BOXING": "0"}, id="boxing-off"),
        pytest.param({"ACCELERATOR": "cuda"}, id="another-accelerator"),
        pytest.param({"FLAGOS_CORE": ""}, id="strategy-empty"),
        pytest.param({"FLAGOS_CORE": "preload"}, id="strategy-named"),
    ],
)
def test_preload_must_not_depend_on_build_variables(tmp_path, environ):
    """Defect of the field: the stock core was used silently when the variable of the build was not set at run time."""
    assert set(origins(report(complete_site(tmp_path), **environ)).values()) == {"torch_fl"}


def test_foreign_copy_on_the_library_path_must_be_ignored(tmp_path):
    site = complete_site(tmp_path)
    shutil.copytree(site.torch_lib, tmp_path / "foreign")
    result = report(site, LD_LIBRARY_PATH=str(tmp_path / "foreign"))
    assert set(origins(result).values()) == {"torch_fl"}


def test_files_linked_from_an_installers_cache_must_be_accepted(tmp_path):
    site = complete_site(tmp_path)
    cache = tmp_path / "cache"
    cache.mkdir()
    for file in [*site.bundle.iterdir(), *site.torch_lib.iterdir()]:
        target = cache / f"{file.parent.name}-{file.name}"
        target.mkdir()
        file.rename(target / file.name)
        file.symlink_to(target / file.name)
    mapped = report(site)["mapped"]
    assert mapped["libc10.so"] == [str(cache / "lib_fake-libc10.so/libc10.so")]


def test_symbols_of_the_core_must_not_enter_the_global_scope(tmp_path):
    """libtorch_cpu exports BLAS names; in the global scope they would take over those of unrelated modules."""
    site = complete_site(tmp_path)
    spec: dict[str, Any] = {"needed": CORE["libtorch_cpu.so"], "defined": ("dgemm_",), "runpath": f"$ORIGIN:{site.sdk}"}
    core = site.library(site.bundle / "libtorch_cpu.so", **spec)
    spec = {"needed": CORE["libtorch_global_deps.so"], "defined": ("from_global_deps",)}
    deps = site.library(site.bundle / "libtorch_global_deps.so", **spec)
    for entry in site.manifest["files"]:
        if entry["name"] in {core.name, deps.name}:
            entry["size"] = (site.bundle / entry["name"]).stat().st_size
    site.write_manifest()
    ask = "import torch_fl, ctypes; scope = ctypes.CDLL(None)\n"
    done = site.run(ask + "print(hasattr(scope, 'dgemm_'), hasattr(scope, 'from_global_deps'))")
    assert done.stdout == "False True\n", done.stderr


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param({}, ("6.3.0", "26.4", None), id="vendor"),
        pytest.param({"FLAGOS_DCU_HIP_VERSION": "6.4.1"}, ("6.4.1", "26.4", None), id="overridden"),
    ],
)
def test_version_fields_must_be_restored_where_stock_has_none(tmp_path, environ, expected):
    """Defect of the field: without hip in torch.version, Triton finds 0 active drivers."""
    result = report(complete_site(tmp_path), **environ)
    assert (result["hip"], result["rocm"], result["cuda"]) == expected
    assert result["torch"] == "2.10.0+cpu"


def test_distribution_version_must_carry_the_label(tmp_path):
    assert report(complete_site(tmp_path))["version"] == "0.1.0+fk"


@pytest.mark.parametrize(("preset", "expected"), [(None, "fakevendor"), ("mine", "mine")])
def test_gems_vendor_must_be_set_unless_the_user_did(tmp_path, preset, expected):
    assert report(complete_site(tmp_path), **({"GEMS_VENDOR": preset} if preset else {}))["gems"] == expected


@pytest.mark.parametrize("driver", [True, False])
@pytest.mark.parametrize("core", ["vendor", "stock"])
def test_second_import_after_a_good_one_must_change_nothing(tmp_path, core, driver):
    site = complete_site(tmp_path, core=core, driver=driver)
    again = "import torch_fl, sys\nfor n in [n for n in sys.modules if n.startswith('torch_fl')]: del sys.modules[n]\n"
    first, second = report(site), report(site, before=again)
    assert second["mapped"] == first["mapped"]
    assert set(second["loaded"]) == set(first["loaded"])
    assert [entry["name"] for entry in second["skipped"]] == [entry["name"] for entry in first["skipped"]]


def test_reload_must_be_harmless(tmp_path):
    site = complete_site(tmp_path)
    code = "import importlib, torch_fl; importlib.reload(torch_fl); print(torch_fl.bundle().strategy)"
    assert site.run(code).stdout == "preload\n"


def test_import_must_leave_no_descriptor_open(tmp_path):
    site = complete_site(tmp_path)
    code = (
        "import os; n = len(os.listdir('/proc/self/fd')); import torch_fl; print(len(os.listdir('/proc/self/fd')) - n)"
    )
    assert site.run(code).stdout == "0\n"


def test_forked_child_must_be_able_to_import_again(tmp_path):
    site = complete_site(tmp_path)
    code = """
import os, torch_fl
child = os.fork()
if child == 0:
    import torch_fl, torch
    os._exit(0 if torch_fl.bundle().core == "vendor" else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert site.run(code).stdout == "0\n"


def test_import_from_a_source_tree_must_say_so(tmp_path: Path):
    site = complete_site(tmp_path)
    (site.root / "torch_fl/_build.json").unlink()
    (site.root / "torch_fl/csrc").mkdir()
    done = site.run("import torch_fl")
    assert done.stderr.endswith(
        f"MissingIdentityError: torch_fl was imported from its source tree {site.root}/torch_fl, which is not built\n"
        "hint: run from another directory, so that the installed wheel is found\n"
    )
