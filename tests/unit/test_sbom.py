from __future__ import annotations

import json

import pytest

from bundle.backends import CUDA, DCU
from bundle.errors import MalformedError
from bundle.sbom import read_sbom, render_sbom, sbom_path
from tests.support.wheels import WheelSpec


def bill_of(spec):
    return json.loads(render_sbom(spec.bundle_manifest(), version=spec.version))


def test_the_bill_must_lie_where_pep_770_says():
    assert sbom_path("torch_fl-1.dist-info") == "torch_fl-1.dist-info/sboms/torch_fl.cdx.json"


def test_the_bill_must_name_every_bundled_file_with_its_hash():
    manifest = WheelSpec(backend=DCU).bundle_manifest()
    version, hashes = read_sbom(render_sbom(manifest, version="1+dtk"), origin="x")
    assert version == "1+dtk"
    assert hashes == {file.name: file.sha256 for file in manifest.files}


def test_a_vendors_library_must_have_its_version_and_supplier_and_a_third_partys_none():
    spec = WheelSpec(backend=DCU, manifest={"vendor_torch": "2.10.0+das"})
    components = {component["name"]: component for component in bill_of(spec)["components"]}
    torch_hip = components["libtorch_hip.so"]
    assert (torch_hip["version"], torch_hip["supplier"]) == ("2.10.0+das", {"name": "Hygon DCU"})
    assert "version" not in components["libmpi-3f.so.40"]
    assert "supplier" not in components["libmpi-3f.so.40"]
    assert components["vendor_version.py"]["type"] == "file"


def test_dependencies_must_follow_dt_needed_within_the_bundle():
    bill = bill_of(WheelSpec(backend=DCU))
    rows = {row["ref"]: row["dependsOn"] for row in bill["dependencies"]}
    assert rows["lib_dcu/libtorch_hip.so"] == ["lib_dcu/libc10.so"]
    assert rows["pkg:pypi/torch-fl@0.1.0%2Bdtk"] == sorted(set(rows) - {"pkg:pypi/torch-fl@0.1.0%2Bdtk"})


def test_references_must_be_unique_and_all_defined():
    bill = bill_of(WheelSpec(backend=CUDA))
    references = [component["bom-ref"] for component in bill["components"]]
    references.append(bill["metadata"]["component"]["bom-ref"])
    assert len(references) == len(set(references))
    assert {row["ref"] for row in bill["dependencies"]} == set(references)


def test_equal_bundles_must_give_equal_bytes_and_others_another_serial_number():
    def text(version):
        return render_sbom(WheelSpec().bundle_manifest(), version=version)

    assert text("1") == text("1")
    assert json.loads(text("1"))["serialNumber"] != json.loads(text("2"))["serialNumber"]
    assert json.loads(text("1"))["serialNumber"].startswith("urn:uuid:")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{", "x: not a bill of materials: ShapeError", id="no-json"),
        pytest.param("[]", "x: not a bill of materials: TypeError", id="no-object"),
        pytest.param('{"bomFormat": "SPDX", "specVersion": "1.6"}', "x: not CycloneDX 1.6", id="other-format"),
        pytest.param(
            '{"bomFormat": "CycloneDX", "specVersion": "1.6"}',
            "x: not a bill of materials: KeyError",
            id="no-components",
        ),
    ],
)
def test_what_is_no_bill_must_be_refused(text, message):
    with pytest.raises(MalformedError) as caught:
        read_sbom(text, origin="x")
    assert str(caught.value).startswith(message)
