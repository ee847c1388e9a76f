"""An installed wheel beside stock torch: what happens when something is missing, damaged, or in the wrong order.

After every refusal, `import torch` in the same process must run on stock torch alone.
"""

from __future__ import annotations

import json
import os
import shutil

import pytest

from tests.e2e.pipeline import rewrite

pytestmark = pytest.mark.slow

AFTERWARDS = """
import json, sys
try:
    import torch_fl
    said = None
except ImportError as err:
    said = str(err)
try:
    import torch_fl
    again = None
except ImportError as err:
    again = str(err)
import torch
paths = {line.split()[-1] for line in open("/proc/self/maps") if "/libtorch" in line or "/libc10" in line}
print(json.dumps({
    "said": said, "again": again, "sum": torch.ones(3).sum().item(), "version": torch.__version__,
    "foreign": sorted(path for path in paths if "/torch/lib/" not in path),
}))
"""


@pytest.fixture(params=["metax", "cuda"], ids=["vendor-core", "stock-core"])
def site(request, installed, tmp_path):
    """Return an environment with the wheel, whose package is put back after the test."""
    made = installed(request.param)
    kept = tmp_path / "package"
    shutil.copytree(made.package, kept, symlinks=True, copy_function=_link)
    yield made
    shutil.rmtree(made.package)
    shutil.copytree(kept, made.package, symlinks=True, copy_function=_link)


def _link(source, target):
    """Hard links: tests replace files, they never write into them."""
    os.link(source, target)


def refused(site, *, driver=True):
    """Run the program above and return what the first import said."""
    result = site.run(AFTERWARDS, driver=driver)
    assert result.code == 0, result.err
    facts = json.loads(result.out.splitlines()[-1])
    assert facts["said"] is not None, "the import was not refused"
    assert facts["again"] == facts["said"]
    assert facts["sum"] == 3.0
    assert facts["foreign"] == [], "parts of the bundle stayed in the process"
    return facts["said"]


def bundle_folder(site):
    return site.package / json.loads((site.package / "_bundle.json").read_text())["bundle_dir"]


def edit_record(site, **changes):
    for name in ("_bundle.json", "_build.json"):
        data = json.loads((site.package / name).read_text())
        data.update({key: value for key, value in changes.items() if key in data})
        rewrite(site.package / name, json.dumps(data).encode())


def test_installed_wheel_must_run(site):
    result = site.run("import torch_fl, torch; x = torch.ones(3, device='flagos'); print((x + x).cpu().tolist())")
    assert (result.code, result.out, result.err) == (0, "[2.0, 2.0, 2.0]\n", "")


def test_plain_torch_must_be_enough(site):
    result = site.run("import torch; x = torch.ones(3, device='flagos'); print((x + x).cpu().tolist())")
    assert (result.code, result.out, result.err) == (0, "[2.0, 2.0, 2.0]\n", "")


def test_torch_imported_first_without_the_hook_must_be_one_clear_error(site):
    program = """
import os
os.environ["FLAGOS_HOOK"] = "0"
import torch
try:
    import torch_fl
except ImportError as err:
    print(err)
print(torch.ones(2).sum())
"""
    result = site.run(program)
    assert (result.code, result.err) == (0, "")
    assert "torch_fl must be imported before torch" in result.out
    assert "put `import torch_fl` before the first `import torch`" in result.out
    assert result.out.endswith("tensor(2.)\n")


def test_missing_library_must_be_named(site):
    (bundle_folder(site) / "libtorch_cuda.so").unlink()
    assert "libtorch_cuda.so" in refused(site)


def test_truncated_library_must_be_named(site):
    library = bundle_folder(site) / "libtorch_cuda.so"
    rewrite(library, library.read_bytes()[: library.stat().st_size // 2])
    assert "libtorch_cuda.so" in refused(site)


def test_swapped_library_must_be_named(site):
    folder = bundle_folder(site)
    rewrite(folder / "libtorch_cuda.so", (folder / "libc10_cuda.so").read_bytes())
    assert "libtorch_cuda.so" in refused(site)


def test_library_destroyed_in_place_must_be_named(site):
    library = bundle_folder(site) / "libtorch_cuda.so"
    rewrite(library, bytes(library.stat().st_size))
    assert "libtorch_cuda.so" in refused(site)


def test_wrong_torch_must_name_both_versions(site):
    edit_record(site, torch="2.12.1")
    said = refused(site)
    assert "torch_fl was built for torch 2.12.1, found torch 2." in said
    assert "hint: pip install torch==2.12.1+cpu --index-url https://download.pytorch.org/whl/cpu" in said


def test_wrong_python_must_name_both_versions(site):
    edit_record(site, python="cp39")
    said = refused(site)
    assert "torch_fl was built for Python 3.9, found Python 3." in said
    assert "hint: install the torch_fl wheel for Python 3." in said


@pytest.mark.parametrize("first", ["import torch", "import torch_fl"])
def test_machine_without_driver_must_run_stock_torch_and_name_it_at_the_first_use(installed, first):
    program = f"""
{first}
import torch, torch_fl
print(torch.flagos.device_count(), torch.ones(3).sum().item(), torch_fl.bundle().core)
print([line for line in open("/proc/self/maps") if "/lib_maca/" in line])
try:
    torch.zeros(1, device="flagos")
except RuntimeError as err:
    print(err)
"""
    result = installed("metax").run(program, driver=False)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(
        "0 3.0 stock\n[]\nflagos has no device in this process: metax: libraries of the driver"
    )
    assert "libmcruntime.so" in result.out
    assert "looked in" in result.out
    printed = "the driver_dirs that `inv forge --backend metax` prints"
    assert f"hint: this wheel is forged: put {printed} on LD_LIBRARY_PATH" in result.out


def test_missing_runtime_of_a_distribution_must_be_refused_where_the_driver_is(installed):
    site = installed("cuda")
    library = site.package.parent / "nvidia" / "cu13" / "lib" / "libcudart.so.13"
    hidden = library.with_name("hidden")
    library.rename(hidden)
    try:
        said = refused(site)
    finally:
        hidden.rename(library)
    # A machine may have a CUDA runtime of its own among the loader's directories; it then lacks the software device's
    # functions, and the loader names the first.
    assert "libraries of the driver stack were not found: libcudart.so.13" in said or "undefined symbol: cuda" in said
    assert "hint: " in said


def test_wheel_without_identity_must_be_refused(site):
    """A single-pass build once left its record out, and the vendor's core was then silently never used."""
    (site.package / "_build.json").unlink()
    assert "_build.json" in refused(site)


def test_preload_must_not_depend_on_the_environment(site):
    """Relinking was once gated on a build variable, so that a self-contained wheel silently ran on the stock core."""
    program = (
        "import torch_fl, torch, json; from torch_fl import mapped_libraries;"
        "print(json.dumps([str(p) for p in mapped_libraries()['libtorch_cuda.so']]))"
    )
    result = site.run(program)
    assert result.code == 0, result.err
    assert json.loads(result.out) == [str(bundle_folder(site) / "libtorch_cuda.so")]
