"""What the bundle stage decides, on fake installations of all four vendors."""

from __future__ import annotations

import functools
import json

import pytest

from bundle.backends import BACKENDS, CoreSource
from bundle.gather import gather, read_stock
from bundle.plan import plan_bundle
from bundle.sdk import resolve_sdk
from bundle.vendor import find_vendor_torch
from tests.support.tiny_elf import ElfSpec
from tests.support.vendor_tree import GRAFTED, MKL, make_vendor, plan_of, rewrite, torch_libraries

CORE = {"libc10.so", "libtorch_cpu.so", "libtorch.so", "libtorch_global_deps.so", "libtorch_python.so", "libshm.so"}


def names(plan):
    return [copy.name for copy in plan.copies]


def order(plan):
    return [step.name for step in plan.load]


def runpath(plan, name):
    return next(edit.runpath for edit in plan.edits if edit.name == name)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """Return the tree and the plan of a complete installation; made once, since most tests only look."""

    @functools.cache
    def get(name):
        tree = make_vendor(name, tmp_path_factory.mktemp(name))
        return tree, plan_of(tree)

    return get


@pytest.mark.parametrize(("name", "count"), [("metax", 9), ("ppu", 12), ("dcu", 28), ("cuda", 5)])
def test_a_complete_bundle_must_have_the_vendors_number_of_files(untouched, name, count):
    _, plan = untouched(name)
    assert len(plan.copies) == count == len(set(names(plan)))
    assert BACKENDS[name].bundle_files in (count, None)
    assert plan.warnings == ()


def test_ppu_must_bundle_its_mkl_and_dcu_its_grafted_libraries(untouched):
    assert set(MKL) < set(names(untouched("ppu")[1]))
    assert set(GRAFTED) < set(names(untouched("dcu")[1]))


@pytest.mark.parametrize("name", BACKENDS)
def test_load_order_must_put_each_library_after_its_needs(untouched, name):
    loaded = order(untouched(name)[1])
    for library, spec in torch_libraries(name).items():
        for needed in set(spec.get("needed", ())) & set(loaded):
            if library in loaded:
                assert loaded.index(needed) < loaded.index(library)


def test_magma_must_be_in_the_load_order_before_what_needs_it(untouched):
    # The field linked libmagma, but did not preload it.
    loaded = order(untouched("dcu")[1])
    assert loaded.index("libtorch_cpu.so") < loaded.index("libmagma.so") < loaded.index("libtorch_hip.so")


def test_nvshmem_must_load_after_the_provider_that_it_does_not_name(untouched):
    assert order(untouched("cuda")[1])[:3] == [
        "libc10_cuda.so",
        "libtorch_nvshmem.so",
        "libtorch_cuda.so",
    ]


@pytest.mark.parametrize(("name", "bundled"), [("dcu", True), ("cuda", True), ("metax", False), ("ppu", False)])
def test_nvrtc_must_be_bundled_where_stock_torch_lacks_it_and_opened_only_with_a_driver(untouched, name, bundled):
    # Reached by dlopen, not by DT_NEEDED: on DCU the first random number failed for want of it.
    _, plan = untouched(name)
    assert ("libcaffe2_nvrtc.so" in names(plan)) == bundled
    late = [step.name for step in plan.load if step.when == "driver"]
    assert late == (["libcaffe2_nvrtc.so"] if bundled else [])
    if bundled:
        assert order(plan)[-1] == "libcaffe2_nvrtc.so"


def test_dcu_must_carry_version_py_and_its_fields(untouched):
    # Without them torch.version.hip is None, and Triton finds no active driver.
    _, plan = untouched("dcu")
    copy = next(copy for copy in plan.copies if copy.name == "vendor_version.py")
    assert (copy.source.name, copy.role.value) == ("version.py", "data")
    assert plan.version_fields == {"hip": "6.3.26113", "rocm": "26.04"}
    assert "vendor_version.py" not in order(plan)


def test_a_missing_libshm_must_fall_back_to_stocks_and_say_so(tmp_path):
    # A vendor image ships eight libraries without it; the copy was skipped in silence and the import died.
    tree = make_vendor("metax", tmp_path)
    (tree.lib / "libshm.so").unlink()
    plan = plan_of(tree)
    assert len(plan.copies) == 8
    assert plan.warnings == ("libshm.so not in vendor torch; stock's is used",)
    assert "$ORIGIN/../../torch/lib" in runpath(plan, "libtorch_python.so")
    assert "$ORIGIN/../../torch/lib" not in runpath(plan, "libc10.so")


def test_a_cuda_build_without_nvshmem_must_be_planned_with_a_warning(tmp_path):
    tree = make_vendor("cuda", tmp_path)
    (tree.lib / "libtorch_nvshmem.so").unlink()
    rewrite(tree, "libtorch_cuda.so", needed=("libc10_cuda.so",))
    plan = plan_of(tree)
    assert len(plan.copies) == 4
    assert plan.warnings == ("libtorch_nvshmem.so not in vendor torch; some builds of the vendor do without",)


def test_a_library_found_in_the_sdk_must_be_left_to_the_target(tmp_path):
    tree = make_vendor("metax", tmp_path)
    ElfSpec(soname="libvendorblas.so.3").write(tree.sdk_root / "lib" / "libvendorblas.so.3")
    rewrite(tree, "libc10.so", needed=("libvendorblas.so.3", "libgomp.so.1", "libstdc++.so.6"))
    assert plan_of(tree).driver_sonames == ("libmcruntime.so", "libvendorblas.so.3")


@pytest.mark.parametrize("name", BACKENDS)
def test_runpath_must_hold_only_origin_and_target_driver_dirs(untouched, name):
    tree, plan = untouched(name)
    backend = BACKENDS[name]
    for edit in plan.edits:
        assert edit.runpath[:2] == (f"$ORIGIN/../../torch_fl/{backend.bundle_dir}", "$ORIGIN")
        assert len(set(edit.runpath)) == len(edit.runpath)
        assert all(entry for entry in edit.runpath)
        assert str(tree.sdk_root.parent) not in ":".join(edit.runpath)
        assert ("$ORIGIN/../../torch/lib" in edit.runpath) == (backend.core is CoreSource.STOCK)
        assert not [entry for entry in edit.runpath if "vendor/build" in entry]
        assert edit.runpath[-len(plan.driver_dirs) :] == plan.driver_dirs or not plan.driver_dirs
    assert len(plan.edits) == len(plan.copies) - int(backend.version_file)


def test_cuda_must_keep_the_vendors_entries_for_pip_installed_libraries(tmp_path):
    tree = make_vendor("cuda", tmp_path)
    rewrite(tree, "libtorch_cuda.so", rpath="$ORIGIN/../../nvidia/cu13/lib:/usr/local/cuda/lib64:$ORIGIN:")
    assert runpath(plan_of(tree), "libtorch_cuda.so") == (
        "$ORIGIN/../../torch_fl/lib_cuda",
        "$ORIGIN",
        "$ORIGIN/../../torch/lib",
        "$ORIGIN/../../nvidia/cu13/lib",
    )


def test_other_backends_must_not_keep_the_vendors_entries(tmp_path):
    tree = make_vendor("ppu", tmp_path)
    rewrite(tree, "libc10.so", rpath="$ORIGIN/../../nvidia/cu13/lib:$ORIGIN/stubs")
    assert not [entry for entry in runpath(plan_of(tree), "libc10.so") if "nvidia" in entry or "stubs" in entry]


def test_core_vendor_must_bundle_the_whole_cuda_core(untouched):
    tree, stock = untouched("cuda")
    plan = plan_of(tree, core=CoreSource.VENDOR)
    assert set(names(plan)) == CORE | set(names(stock))
    assert plan.core is CoreSource.VENDOR
    assert order(plan).index("libtorch_cuda.so") < order(plan).index("libtorch.so")
    assert "$ORIGIN/../../torch/lib" not in runpath(plan, "libtorch_cuda.so")


def test_cuda_must_take_requirements_from_the_vendors_metadata(tmp_path):
    tree = make_vendor("cuda", tmp_path)
    assert [requirement.partition("=")[0] for requirement in plan_of(tree).requirements] == [
        "nvidia-cudnn-cu13",
        "cuda-toolkit[cudart,nvrtc]",
    ]
    for metadata in tree.torch.parent.glob("*.dist-info/METADATA"):
        metadata.unlink()
    assert "the target must bring the runtime by other means" in plan_of(tree).warnings[0]


def test_a_link_out_of_torch_libs_must_be_bundled_with_its_content(untouched):
    # Links were dropped by a walk over regular files; libmpi is one in the real torch.libs.
    tree, plan = untouched("dcu")
    copy = next(copy for copy in plan.copies if copy.name == GRAFTED[4])
    assert copy.source == tree.sdk_root.parent / "opt" / "mpi" / "libe.so.4"
    assert not copy.source.is_symlink()


def test_two_names_of_one_grafted_file_must_give_one_copy_under_the_needed_name(tmp_path):
    tree = make_vendor("dcu", tmp_path)
    for alias, target in (("lib0.so", GRAFTED[0]), ("libzz.so", GRAFTED[16])):
        (tree.torch.parent / "torch.libs" / alias).symlink_to(target)
    plan = plan_of(tree)
    assert len(plan.copies) == 28
    assert {"lib0.so", "libzz.so"}.isdisjoint(names(plan))


def test_the_c_and_cpp_runtimes_must_never_be_bundled(tmp_path):
    tree = make_vendor("dcu", tmp_path)
    for name in ("libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1"):
        ElfSpec(soname=name).write(tree.torch.parent / "torch.libs" / name)
    plan = plan_of(tree)
    assert len(plan.copies) == 28
    assert [warning.split(" ")[0] for warning in plan.warnings] == ["libgcc_s.so.1", "libgomp.so.1", "libstdc++.so.6"]


def test_a_grafted_file_that_nothing_needs_must_be_carried_but_not_opened(tmp_path):
    tree = make_vendor("dcu", tmp_path)
    ElfSpec(soname="libidle.so").write(tree.torch.parent / "torch.libs" / "libidle.so")
    (tree.torch.parent / "torch.libs" / "LICENSE").write_text("text")
    plan = plan_of(tree)
    assert {"libidle.so", "LICENSE"} < set(names(plan))
    assert {"libidle.so", "LICENSE"}.isdisjoint(order(plan))
    assert "LICENSE" not in {edit.name for edit in plan.edits}


def test_a_passed_over_sdk_variable_must_become_a_warning(tmp_path):
    tree = make_vendor("metax", tmp_path)
    backend = BACKENDS["metax"]
    environ = {"METAX_PATH": "/typo", "MACA_PATH": str(tree.sdk_root)}
    vendor = find_vendor_torch(backend, {}, explicit=tree.torch)
    stock = read_stock(tree.stock_lib, "2.10.0+cpu")
    inputs = gather(backend, vendor, resolve_sdk(backend, environ), stock, environ={})
    assert plan_bundle(inputs).warnings == ("/typo (METAX_PATH) has no lib/libmcruntime.so, passed over",)


def test_a_plan_must_be_printable_before_anything_is_written(untouched):
    tree, plan = untouched("dcu")
    data = json.loads(plan.to_json())
    assert data["schema"] == 1
    assert data["backend"] == "dcu"
    assert data["size"] == sum(copy["size"] for copy in data["copies"])
    assert plan.to_json() == plan_of(tree).to_json()
    text = plan.to_text()
    assert text.startswith("dcu: 28 files, ")
    assert "libmagma.so  device, 0.0 MB, opened as " in text
    assert "libcaffe2_nvrtc.so  core, 0.0 MB, opened as 27 where the driver is" in text
    assert "left to the target: libgalaxyhip.so.5, libomp.so" in text
