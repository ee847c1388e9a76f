"""Reading a bundle back: it must be whole, unchanged and of the backend that was asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bundle.backends import BACKENDS
from bundle.bundling import load_bundle
from bundle.errors import MalformedError, NothingBundledError, RefusedError, TamperedBundleError
from bundle.manifest import BUNDLE_FILE, read_manifest
from tests.support.wheels import WheelSpec


@pytest.fixture
def copied(tmp_path):
    """Return a function that writes a finished bundle."""
    return lambda name: WheelSpec(backend=BACKENDS[name]).write_bundle(tmp_path / "bundle")


def test_load_bundle_must_return_the_manifest(copied):
    out = copied("ppu")
    assert load_bundle(out, backend="ppu") == read_manifest(out / BUNDLE_FILE)


def test_a_skipped_bundle_stage_must_be_named(tmp_path):
    with pytest.raises(NothingBundledError) as caught:
        load_bundle(tmp_path / "bundle", backend="dcu")
    assert str(caught.value) == f"dcu: no bundle in {tmp_path}/bundle: _bundle.json is missing"
    assert caught.value.hint == "run `inv bundle --backend dcu` first"
    assert caught.value.exit_code == 3


def test_another_backends_bundle_must_be_refused(copied):
    with pytest.raises(NothingBundledError, match=r"dcu: the bundle in .* belongs to metax"):
        load_bundle(copied("metax"), backend="dcu")


def test_an_empty_bundle_must_be_refused(copied):
    out = copied("metax")
    manifest = replace(read_manifest(out / BUNDLE_FILE), files=())
    (out / BUNDLE_FILE).write_text(manifest.to_json())
    with pytest.raises(NothingBundledError, match="lists no files"):
        load_bundle(out, backend="metax")


def _append(path):
    path.write_bytes(path.read_bytes() + b"x")


def _flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _link(path):
    path.rename(path.parent.parent.parent / "moved")
    path.symlink_to(path.parent.parent.parent / "moved")


@pytest.mark.parametrize("damage", [_append, _flip, Path.unlink, _link], ids=["longer", "bit", "gone", "link"])
def test_a_changed_file_must_be_found(copied, damage):
    out = copied("metax")
    damage(out / "lib_maca" / "libc10.so")
    damage_two = out / "lib_maca" / "libshm.so"
    _append(damage_two)
    with pytest.raises(TamperedBundleError) as caught:
        load_bundle(out, backend="metax")
    assert str(caught.value) == "metax: bundled files differ from their manifest: libc10.so, libshm.so"
    assert caught.value.exit_code == 9


@pytest.mark.parametrize("name", ["lib_maca/libextra.so", "lib_dcu/libc10.so", "stray.txt"])
def test_a_file_that_the_manifest_does_not_list_must_be_refused(copied, name):
    out = copied("metax")
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_bytes(b"")
    with pytest.raises(RefusedError, match=f"that _bundle.json does not list: {name}"):
        load_bundle(out, backend="metax")


def test_a_manifest_that_is_not_json_must_be_refused(copied):
    out = copied("metax")
    (out / BUNDLE_FILE).write_text("{")
    with pytest.raises(MalformedError, match=r"_bundle\.json: not JSON"):
        load_bundle(out, backend="metax")
