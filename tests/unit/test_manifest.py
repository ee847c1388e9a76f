"""`_bundle.json` and `_build.json`: what is written must be read back, and nothing may be guessed."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from bundle.errors import MalformedError
from bundle.manifest import BuildRecord, BundledFile, LoadStep, Manifest, read_manifest

FILE = BundledFile(
    name="libc10.so",
    soname="libc10.so",
    role="core",
    sha256="0" * 64,
    size=1,
    needed=("libc.so.6",),
    runpath=("$ORIGIN", "/opt/dtk/lib"),
)
MANIFEST = Manifest(
    backend="dcu",
    title="Hygon DCU",
    core="vendor",
    strategy="preload",
    bundle_dir="lib_dcu",
    torch="2.10.0",
    python="cp310",
    machine="x86_64",
    label="dtk",
    forged=False,
    vendor_torch="2.10.0+das",
    sdk_version="26.04",
    runtime_prefix="hip",
    runtime_libraries=("libgalaxyhip.so.5",),
    gems_vendor="hygon",
    load=(LoadStep(name="libc10.so", when="always"),),
    files=(FILE, replace(FILE, name="vendor_version.py", soname=None, role="data", needed=(), runpath=())),
    driver_sonames=("libgalaxyhip.so.5",),
    driver_dirs=("/opt/dtk/lib",),
    version_fields={"hip": "6.3"},
    requirements=(),
)
BUILD = {
    "schema": 1,
    "backend": "dcu",
    "accelerator": "dcu",
    "version": "0.1.0",
    "torch": "2.10.0",
    "python": "cp310",
    "machine": "x86_64",
    "bundle_dir": "lib_dcu",
    "flaggems_python": True,
    "runtime_prefix": "hip",
    "runtime_libraries": ["libgalaxyhip.so.5"],
}


def changed(**changes):
    data = {**json.loads(MANIFEST.to_json()), **changes}
    return json.dumps({key: value for key, value in data.items() if value is not ...})


def test_a_manifest_must_come_back_equal(tmp_path):
    path = tmp_path / "_bundle.json"
    path.write_text(MANIFEST.to_json())
    assert read_manifest(path) == MANIFEST


def test_equal_manifests_must_give_equal_bytes():
    other = replace(MANIFEST, version_fields={"rocm": "1", "hip": "6.3"})
    same = replace(MANIFEST, version_fields={"hip": "6.3", "rocm": "1"})
    assert other.to_json() == same.to_json()
    assert MANIFEST.to_json().endswith("}\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("{", "not JSON", id="not-json"),
        pytest.param("[]", "schema 'list', expected 1", id="not-an-object"),
        pytest.param("{}", "schema None, expected 1", id="no-schema"),
        pytest.param(changed(schema=2), "schema 2, expected 1", id="newer-schema"),
        pytest.param(changed(colour="red"), "colour", id="unknown-key"),
        pytest.param(changed(label=...), "label", id="missing-key"),
        pytest.param(changed(load=...), "load", id="missing-list"),
        pytest.param("[" * 100_000, "not JSON", id="nested-too-deeply"),
        pytest.param(changed(schema=True), "schema True, expected 1", id="schema-that-only-equals-1"),
        pytest.param(changed(python=12), "python is 12, expected text", id="number-for-text"),
        pytest.param(changed(label=None), "label is null, expected text", id="null-for-text"),
        pytest.param(changed(forged="no"), 'forged is "no", expected true or false', id="text-for-flag"),
        pytest.param(changed(requirements="abc"), 'requirements is "abc", expected an array', id="text-for-array"),
        pytest.param(changed(requirements=[5]), "requirements[0] is 5, expected text", id="number-in-array"),
        pytest.param(changed(version_fields=[1]), "version_fields is [1], expected an object", id="array-for-object"),
        pytest.param(
            changed(version_fields={"hip": 6}), "version_fields.hip is 6, expected text", id="number-in-object"
        ),
        pytest.param(changed(load=[5]), "load[0] is 5, expected an object", id="number-for-step"),
        pytest.param(changed(bundle_dir="../lib_dcu"), "not plain names: '../lib_dcu'", id="folder-that-leads-out"),
        pytest.param(
            changed(files=[{**asdict(FILE), "name": "../../x.so"}]),
            "not plain names: '../../x.so'",
            id="file-that-leads-out",
        ),
        pytest.param(
            changed(files=[{**asdict(FILE), "size": True}]),
            "files[0].size is true, expected a whole number",
            id="flag-for-size",
        ),
        pytest.param(changed(load=[{"name": "x"}]), "when", id="load-step-without-when"),
        pytest.param(changed(files=[{"name": "x"}]), "needed", id="file-without-needed"),
    ],
)
def test_a_manifest_that_does_not_fit_must_be_refused_by_name(text, reason):
    with pytest.raises(MalformedError) as caught:
        Manifest.from_json(text, origin="dir/_bundle.json")
    assert str(caught.value).startswith("dir/_bundle.json: ")
    assert reason in str(caught.value)


def test_a_build_record_must_be_read():
    record = BuildRecord.from_json(json.dumps(BUILD), origin="x")
    assert (record.backend, record.flaggems_python, record.runtime_libraries) == ("dcu", True, ("libgalaxyhip.so.5",))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"schema": 2}, "schema 2, expected 1", id="schema"),
        pytest.param({"colour": "red"}, "colour", id="unknown-key"),
        pytest.param({"version": None}, "version is null, expected text", id="null-for-text"),
        pytest.param({"runtime_libraries": 1}, "not a build record", id="no-list"),
    ],
)
def test_a_build_record_that_does_not_fit_must_be_refused(changes, reason):
    with pytest.raises(MalformedError, match=reason):
        BuildRecord.from_json(json.dumps({**BUILD, **changes}), origin="_build.json")


def test_a_manifest_that_is_not_text_must_be_refused_by_name(tmp_path):
    path = tmp_path / "_bundle.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(MalformedError, match=rf"^{path}: not UTF-8: "):
        read_manifest(path)
