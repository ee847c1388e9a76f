"""Which directory is the vendor's torch, and what it says of itself."""

from __future__ import annotations

import pytest

from bundle.backends import BACKENDS, CUDA, DCU, METAX, PPU
from bundle.errors import (
    AmbiguousVendorTorchError,
    InputNotFoundError,
    MalformedError,
    RefusedError,
    VendorTorchNotFoundError,
    VersionMismatchError,
)
from bundle.vendor import check_base_version, check_python, find_vendor_torch, installed_candidates
from bundle.version_file import base_version, read_assigned
from tests.support.vendor_tree import STOCK_VERSION, make_vendor, version_text


@pytest.mark.parametrize("name", BACKENDS)
def test_a_torch_package_must_be_described(tmp_path, name):
    tree = make_vendor(name, tmp_path)
    vendor = find_vendor_torch(BACKENDS[name], {}, explicit=tree.torch)
    assert (vendor.lib, vendor.package) == (tree.lib, tree.torch)
    assert vendor.base_version == "2.10.0"
    assert vendor.version_file == tree.torch / "version.py"
    assert (vendor.torch_libs is not None) == (name == "dcu")


def test_version_fields_must_be_those_that_are_assigned(tmp_path):
    vendor = find_vendor_torch(DCU, {}, explicit=make_vendor("dcu", tmp_path).torch)
    assert vendor.version == "2.10.0+das.opt1.dtk2604"
    assert vendor.version_fields == {"hip": "6.3.26113", "rocm": "26.04"}


def test_requirements_must_be_those_that_bring_the_runtime(tmp_path):
    tree = make_vendor("cuda", tmp_path)
    assert find_vendor_torch(CUDA, {}, explicit=tree.torch).requirements == (
        'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"',
        'cuda-toolkit[cudart,nvrtc]==13.0.3; platform_system == "Linux"',
    )
    assert find_vendor_torch(PPU, {}, explicit=tree.torch).requirements == ()


def test_requirements_must_come_from_the_matching_distribution(tmp_path):
    tree = make_vendor("cuda", tmp_path)
    old = tree.torch.parent / "torch-2.9.0.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Name: torch\nVersion: 2.9.0\nRequires-Dist: nvidia-old\n")
    found = find_vendor_torch(CUDA, {}, explicit=tree.torch).requirements
    assert "nvidia-old" not in found
    assert len(found) == 2


def test_metadata_in_another_encoding_must_still_tell_its_requirements(tmp_path):
    tree = make_vendor("cuda", tmp_path)
    (metadata,) = tree.torch.parent.glob("torch-*.dist-info/METADATA")
    metadata.write_bytes(b"Author: J\xf6rg\n" + metadata.read_bytes())
    assert len(find_vendor_torch(CUDA, {}, explicit=tree.torch).requirements) == 2


def test_two_foreign_distributions_must_be_refused(tmp_path):
    tree = make_vendor("cuda", tmp_path)
    (tree.torch / "version.py").write_text(version_text("2.10.0+cu999", {}))
    other = tree.torch.parent / "torch-2.9.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Name: torch\nVersion: 2.9.0\n")
    with pytest.raises(InputNotFoundError, match=r"more than one distribution of torch, none of them 2\.10\.0\+cu999"):
        find_vendor_torch(CUDA, {}, explicit=tree.torch)


@pytest.mark.parametrize("variable", [DCU.vendor_lib_variable, "FLAGOS_VENDOR_TORCH_LIB"])
def test_both_variables_must_be_read_and_lead_to_the_package(tmp_path, variable):
    tree = make_vendor("dcu", tmp_path)
    vendor = find_vendor_torch(DCU, {variable: str(tree.lib)})
    assert vendor.package == tree.torch
    assert vendor.torch_libs == tree.torch.parent / "torch.libs"


def test_variables_that_disagree_must_be_refused(tmp_path):
    first, second = make_vendor("dcu", tmp_path / "1"), make_vendor("dcu", tmp_path / "2")
    with pytest.raises(AmbiguousVendorTorchError) as caught:
        find_vendor_torch(DCU, {"FLAGOS_DCU_TORCH_LIB": str(first.lib), "FLAGOS_VENDOR_TORCH_LIB": str(second.lib)})
    assert str(caught.value) == f"dcu: more than one vendor torch: {first.lib}, {second.lib}"
    assert caught.value.exit_code == 4


def test_an_explicit_directory_must_win_over_the_environment(tmp_path):
    first, second = make_vendor("dcu", tmp_path / "1"), make_vendor("dcu", tmp_path / "2")
    environ = {"FLAGOS_DCU_TORCH_LIB": str(first.lib)}
    assert find_vendor_torch(DCU, environ, explicit=second.torch).lib == second.lib


def test_search_must_take_the_only_fitting_candidate(tmp_path):
    make_vendor("dcu", tmp_path / "dcu")
    tree = make_vendor("metax", tmp_path / "metax")
    found = installed_candidates([tmp_path / "dcu/vendor", tmp_path / "metax/vendor", tmp_path / "none"])
    assert len(found) == 2
    assert find_vendor_torch(METAX, {}, search=found).lib == tree.lib


def test_search_must_count_a_linked_environment_once(tmp_path):
    tree = make_vendor("dcu", tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    found = installed_candidates([tmp_path / "real/vendor", tmp_path / "link/vendor"])
    assert found == (tree.torch,)


def test_search_must_refuse_two_fitting_candidates(tmp_path):
    trees = [make_vendor("dcu", tmp_path / name) for name in "ab"]
    with pytest.raises(AmbiguousVendorTorchError, match="more than one vendor torch"):
        find_vendor_torch(DCU, {}, search=[tree.torch for tree in trees])


def test_no_vendor_torch_must_say_why_each_place_was_no_good(tmp_path):
    ppu = make_vendor("ppu", tmp_path / "ppu")
    (tmp_path / "empty").mkdir()
    with pytest.raises(VendorTorchNotFoundError) as caught:
        find_vendor_torch(METAX, {}, search=[ppu.torch, tmp_path / "empty"])
    assert str(caught.value) == (
        "metax: no vendor torch found; looked in FLAGOS_MACA_TORCH_LIB, FLAGOS_VENDOR_TORCH_LIB (not set); "
        f"{ppu.torch} (version.py assigns nothing with metax or maca; it is 2.10.0); "
        f"{tmp_path}/empty (no libtorch_cuda.so)"
    )
    assert caught.value.exit_code == 4
    assert "FLAGOS_MACA_TORCH_LIB" in caught.value.hint


def test_a_named_directory_that_is_not_there_must_be_named(tmp_path):
    with pytest.raises(VendorTorchNotFoundError, match=r"looked in .*/gone \(no such directory\)"):
        find_vendor_torch(METAX, {}, explicit=tmp_path / "gone")


def test_the_hip_marker_must_be_an_assigned_value_not_a_word(tmp_path):
    # Every torch's version.py holds the words hip, rocm and cuda: a substring search took any torch for DCU's.
    tree = make_vendor("dcu", tmp_path)
    (tree.torch / "version.py").write_text("# dtk das\n" + version_text("2.10.0+cpu", {}))
    with pytest.raises(RefusedError) as caught:
        find_vendor_torch(DCU, {}, explicit=tree.torch)
    assert str(caught.value) == (
        f"dcu: {tree.torch} is not this vendor's torch: version.py assigns nothing with dtk or das; it is 2.10.0+cpu"
    )
    assert find_vendor_torch(DCU, {}, explicit=tree.torch, declared_version="2.10.0").version == "2.10.0+cpu"


def test_a_field_of_the_vendors_own_must_count_as_its_mark(tmp_path):
    tree = make_vendor("metax", tmp_path)
    (tree.torch / "version.py").write_text(version_text("2.10.0", {}) + "maca: Optional[str] = '3.3.0'\n")
    assert find_vendor_torch(METAX, {}, explicit=tree.torch).version == "2.10.0"


def test_a_bare_library_directory_must_have_its_version_declared(tmp_path):
    # A vendor image ships the fork as a folder of libraries, without version.py.
    tree = make_vendor("metax", tmp_path)
    bare = tree.lib.rename(tmp_path / "vendor-libtorch")
    with pytest.raises(RefusedError) as caught:
        find_vendor_torch(METAX, {}, explicit=bare)
    assert "has no version.py" in str(caught.value)
    assert "TORCH_FL_VENDOR_TORCH_VERSION" in caught.value.hint
    vendor = find_vendor_torch(METAX, {}, explicit=bare, declared_version="2.10.0+maca3")
    assert (vendor.package, vendor.version, vendor.base_version) == (None, "2.10.0+maca3", "2.10.0")


def test_a_declaration_that_contradicts_version_py_must_be_refused(tmp_path):
    tree = make_vendor("metax", tmp_path)
    with pytest.raises(RefusedError, match=r"says 2\.10\.0\+metax3\.3\.0, but 2\.9\.1 was declared"):
        find_vendor_torch(METAX, {}, explicit=tree.torch, declared_version="2.9.1")


def test_another_base_version_than_stocks_must_be_refused(tmp_path):
    vendor = find_vendor_torch(DCU, {}, explicit=make_vendor("dcu", tmp_path).torch)
    check_base_version(DCU, vendor, STOCK_VERSION)
    with pytest.raises(VersionMismatchError) as caught:
        check_base_version(DCU, vendor, "2.11.0+cpu")
    assert str(caught.value) == (
        "dcu: vendor torch is 2.10.0+das.opt1.dtk2604, stock torch is 2.11.0+cpu; the base versions must be equal"
    )
    assert caught.value.exit_code == 9


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        pytest.param("hip: Optional[str] = '6.3'", {"hip": "6.3"}, id="annotated"),
        pytest.param("hip = '6.3'", {"hip": "6.3"}, id="bare"),
        pytest.param("hip = rocm = '6.3'", {"hip": "6.3", "rocm": "6.3"}, id="chained"),
        pytest.param("hip: Optional[str] = None", {}, id="none"),
        pytest.param("hip: Optional[str]", {}, id="no-value"),
        pytest.param("# hip = '6.3'", {}, id="comment"),
        pytest.param("debug = False", {}, id="not-a-string"),
    ],
)
def test_version_py_must_be_read_by_assignment(tmp_path, line, fields):
    path = tmp_path / "version.py"
    path.write_text(line + "\n")
    assert read_assigned(path) == fields


def test_version_py_must_not_be_run(tmp_path):
    path = tmp_path / "version.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n__version__ = '2.10.0'\n")
    assert read_assigned(path) == {"__version__": "2.10.0"}
    assert not (tmp_path / "ran").exists()


def test_a_version_py_that_is_not_python_must_be_refused_by_name(tmp_path):
    path = tmp_path / "version.py"
    path.write_text("__version__ = '2.10.0\n")
    with pytest.raises(MalformedError, match=r"version\.py: not a readable version\.py"):
        read_assigned(path)


@pytest.mark.parametrize(
    ("version", "base"),
    [
        ("2.10.0+das.opt1.dtk2604", "2.10.0"),
        ("2.10.0a0+git1", "2.10.0"),
        ("2.10.0-metax.3.8", "2.10.0"),
        ("2.13", "2.13"),
    ],
)
def test_base_version_must_be_the_release_part(version, base):
    assert base_version(version, origin="x") == base


def test_base_version_must_refuse_what_is_no_version():
    with pytest.raises(MalformedError, match=r"version\.py: 'unknown' is not a version of torch"):
        base_version("unknown", origin="version.py")


@pytest.mark.parametrize(
    ("modules", "accepted"),
    [
        pytest.param(["_C.cpython-310-x86_64-linux-gnu.so"], True, id="same"),
        pytest.param([], True, id="tells-nothing"),
        pytest.param(["_C.cpython-312-x86_64-linux-gnu.so"], False, id="other"),
    ],
)
def test_a_torch_for_another_python_must_be_refused(tmp_path, modules, accepted):
    vendor = find_vendor_torch(DCU, {}, explicit=make_vendor("dcu", tmp_path).torch)
    for name in modules:
        (vendor.lib.parent / name).touch()
    if accepted:
        check_python(DCU, vendor, "cp310")
        return
    with pytest.raises(RefusedError) as caught:
        check_python(DCU, vendor, "cp310")
    assert str(caught.value) == f"dcu: the wheel is for cp310, the vendor's torch in {vendor.package} for cp312"
    assert caught.value.exit_code == 9
