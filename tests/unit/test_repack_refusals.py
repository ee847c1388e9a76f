"""Repack: what it refuses, and that nothing is left in the dist folder then."""

from __future__ import annotations

import re
import stat
from dataclasses import replace

import pytest

from bundle.backends import METAX, PPU
from bundle.errors import MalformedError, NothingBundledError, RefusedError, TamperedBundleError, UsageError
from bundle.repack import labelled, repack_stage
from tests.support.repacking import inputs_of
from tests.support.wheels import RawEntry, WheelSpec, entries, write_raw

THIN = "torch_fl-0.1.0-cp312-cp312-linux_x86_64.whl"


def refusal(kind, inputs, ui):
    with pytest.raises(kind) as caught:
        repack_stage(inputs, ui)
    assert not inputs.dist.exists() or list(inputs.dist.iterdir()) == []
    return caught.value


def test_b50_a_missing_thin_wheel_must_name_the_compile_stage(tmp_path, ui):
    error = refusal(NothingBundledError, inputs_of(WheelSpec(), tmp_path, thin=tmp_path / "none.whl"), ui)
    assert str(error) == f"metax: no thin wheel at {tmp_path}/none.whl"
    assert (error.hint, error.exit_code) == ("run `inv compile --backend metax` first", 3)


def test_b50_a_missing_bundle_must_name_the_bundle_stage(tmp_path, ui):
    inputs = inputs_of(WheelSpec(), tmp_path)
    (inputs.bundle_dir / "_bundle.json").unlink()
    error = refusal(NothingBundledError, inputs, ui)
    assert (error.hint, error.exit_code) == ("run `inv bundle --backend metax` first", 3)


def test_a_tampered_bundle_must_be_refused(tmp_path, ui):
    inputs = inputs_of(WheelSpec(), tmp_path)
    with (inputs.bundle_dir / "lib_maca" / "libc10.so").open("ab") as stream:
        stream.write(b"\0")
    error = refusal(TamperedBundleError, inputs, ui)
    assert str(error) == "metax: bundled files differ from their manifest: libc10.so"
    assert error.exit_code == 9


def test_upstream_315_a_thin_wheel_without_identity_must_be_refused(tmp_path, ui):
    spec, members = WheelSpec().thin()
    del members["torch_fl/_build.json"]
    thin = spec.write(tmp_path / "compile", members)
    error = refusal(RefusedError, inputs_of(WheelSpec(), tmp_path, thin=thin), ui)
    assert str(error) == (
        f"{THIN}: torch_fl/_build.json is missing, so the wheel does not say which backend and torch it was compiled "
        "for, and at import it would not use its bundle"
    )
    assert (error.hint, error.exit_code) == ("run `inv compile --backend metax` again", 9)


@pytest.mark.parametrize(
    ("build", "faults"),
    [
        pytest.param(
            {"backend": "ppu", "bundle_dir": "lib_ppu"},
            [
                "torch_fl/_build.json: backend: the plugin has ppu, the bundle metax",
                "torch_fl/_build.json: bundle directory: the plugin has lib_ppu, the bundle lib_maca",
            ],
            id="backend",
        ),
        pytest.param(
            {"torch": "2.13.0+cpu"},
            ["torch_fl/_build.json: torch base version: the plugin has 2.13.0, the bundle 2.10.0"],
            id="torch",
        ),
        pytest.param(
            {"python": "3.10"},
            [
                "B011 torch_fl/_build.json: cp310 x86_64, the extension is cp312 x86_64",
                "torch_fl/_build.json: Python: the plugin has cp310, the bundle cp312",
            ],
            id="b49-python",
        ),
    ],
)
def test_a_thin_wheel_that_does_not_fit_the_bundle_must_be_refused_with_all_reasons(tmp_path, ui, build, faults):
    thin = WheelSpec(build=build).write_thin(tmp_path / "compile")
    error = refusal(RefusedError, inputs_of(WheelSpec(), tmp_path, thin=thin), ui)
    listed = "\n".join(f"  {fault}" for fault in faults)
    assert str(error) == f"{THIN} cannot be joined with the metax bundle:\n{listed}"
    assert error.hint == (
        "run `inv compile --backend metax` again; if the bundle is the wrong one, `inv bundle --backend metax`"
    )
    assert error.exit_code == 9


@pytest.mark.parametrize("leftover", ["torch_fl/lib_maca/libc10.so", "torch_fl/lib_dcu/x", "torch_fl/_bundle.json"])
def test_leftovers_in_the_thin_wheel_must_be_refused(tmp_path, ui, leftover):
    spec, members = WheelSpec().thin()
    data = WheelSpec().members().get(leftover, b"")
    thin = spec.write(tmp_path / "compile", {**members, leftover: data})
    error = refusal(RefusedError, inputs_of(WheelSpec(), tmp_path, thin=thin), ui)
    assert str(error) == (
        f"{THIN} cannot be joined with the metax bundle:\n  {leftover}: left over from an earlier bundle"
    )


def test_b44_a_link_in_the_thin_wheel_must_be_refused(tmp_path, ui):
    thin = WheelSpec().write_thin(tmp_path / "compile")
    link = RawEntry(name="torch_fl/link.so", data=b"lib/libflagos.so", mode=stat.S_IFLNK | 0o777)
    write_raw(thin, [*entries(thin), link])
    error = refusal(RefusedError, inputs_of(WheelSpec(), tmp_path, thin=thin), ui)
    assert str(error).splitlines()[1:] == [
        "  B006 torch_fl/link.so: a symbolic link; an installer writes its target's name as the file's content"
    ]


def test_b49_a_renamed_thin_wheel_must_be_refused(tmp_path, ui):
    name = "torch_fl-0.1.0-cp310-cp310-linux_x86_64.whl"
    thin = WheelSpec().write_thin(tmp_path / "compile").rename(tmp_path / name)
    error = refusal(RefusedError, inputs_of(WheelSpec(), tmp_path, thin=thin), ui)
    said = "tags cp312-cp312-linux_x86_64, the file name says cp310-cp310-linux_x86_64"
    assert str(error).splitlines()[1:] == [
        f"  B011 torch_fl-0.1.0.dist-info/WHEEL: {said}",
        f"  B011 {name}: the extension module is for cp312-cp312-linux_x86_64",
    ]


@pytest.mark.parametrize("label", ["a b", "metax!", "+x", "metax..1", "../x", "é"])
def test_a_label_that_pep_440_does_not_allow_must_be_refused(tmp_path, ui, label):
    error = refusal(UsageError, inputs_of(WheelSpec(), tmp_path, label=label), ui)
    assert str(error) == (
        f"version label {label!r} is not allowed; expected letters and digits with single dots between, "
        "such as metax3.8.1 (PEP 440 local version)"
    )
    assert error.exit_code == 2


def test_a_version_that_has_a_label_already_must_be_refused():
    with pytest.raises(RefusedError) as caught:
        labelled("0.1.0+dirty", "metax")
    assert str(caught.value) == "the thin wheel's version 0.1.0+dirty has a local label already; repack sets it"


def test_a_thin_wheel_that_is_no_wheel_must_be_refused(tmp_path, ui):
    thin = tmp_path / THIN
    thin.write_bytes(b"no zip")
    error = refusal(MalformedError, inputs_of(WheelSpec(backend=METAX), tmp_path, thin=thin), ui)
    assert str(error) == f"{thin}: not a wheel: File is not a zip file"
    assert error.exit_code == 8


def test_the_wheel_of_another_backend_must_not_be_replaced(tmp_path, ui):
    inputs = inputs_of(WheelSpec(backend=METAX), tmp_path / "metax", label="mine")
    first = repack_stage(inputs, ui)
    before = first.read_bytes()
    other = replace(inputs_of(WheelSpec(backend=PPU), tmp_path / "ppu", label="mine"), dist=first.parent)
    with pytest.raises(RefusedError, match=rf"ppu: {re.escape(str(first))} is there already, and belongs .* metax"):
        repack_stage(other, ui)
    assert first.read_bytes() == before
    assert repack_stage(inputs, ui) == first


def test_a_damaged_wheel_in_the_way_must_be_replaced(tmp_path, ui):
    inputs = inputs_of(WheelSpec(backend=METAX), tmp_path)
    made = repack_stage(inputs, ui)
    before = made.read_bytes()
    made.write_bytes(before[:1000])
    repack_stage(inputs, ui)
    assert made.read_bytes() == before
