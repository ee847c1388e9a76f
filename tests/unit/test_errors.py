"""Refusals: each has an exit code that the module's table lists, a hint, and a text of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bundle import errors

OWN = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.BundleError)]
EXAMPLES = {
    errors.BundleError: (errors.BundleError("plain"), "plain"),
    errors.UsageError: (errors.UsageError("--workers is 0"), "--workers is 0"),
    errors.UnknownBackendError: (errors.UnknownBackendError("unknown backend 'x'"), "unknown backend 'x'"),
    errors.NothingBundledError: (errors.NothingBundledError("dcu: none", stage="bundle", backend="dcu"), "dcu: none"),
    errors.InputNotFoundError: (errors.InputNotFoundError("no stock torch"), "no stock torch"),
    errors.VendorTorchNotFoundError: (
        errors.VendorTorchNotFoundError("dcu", ["/a (no lib)", "/b"], variable="V"),
        "dcu: no vendor torch found; looked in /a (no lib); /b",
    ),
    errors.AmbiguousVendorTorchError: (
        errors.AmbiguousVendorTorchError("dcu", [Path("/a"), Path("/b")]),
        "dcu: more than one vendor torch: /a, /b",
    ),
    errors.SdkNotFoundError: (
        errors.SdkNotFoundError("ppu", ["/a (PPU_SDK)"], probe="lib/x.so"),
        "ppu: no SDK with lib/x.so; looked in /a (PPU_SDK)",
    ),
    errors.CoreLibraryMissingError: (
        errors.CoreLibraryMissingError("metax", ["liba.so", "libb.so"], Path("/v")),
        "metax: required libraries missing from /v: liba.so, libb.so",
    ),
    errors.UnresolvedLibraryError: (
        errors.UnresolvedLibraryError("dcu", [("libx.so", ("liba.so", "libb.so"))], ["/opt"]),
        "dcu: 1 needed libraries are unresolved; looked in /opt\n  libx.so (needed by liba.so, libb.so)",
    ),
    errors.LibraryCycleError: (errors.LibraryCycleError(["a", "b", "a"]), "no load order: a -> b -> a"),
    errors.ToolError: (errors.ToolError("patchelf exited with 1"), "patchelf exited with 1"),
    errors.MalformedError: (errors.MalformedError("x: not an ELF file"), "x: not an ELF file"),
    errors.FileAccessError: (
        errors.FileAccessError(OSError(28, "No space left on device", "dist/x.whl")),
        "dist/x.whl: No space left on device",
    ),
    errors.RefusedError: (errors.RefusedError("no", hint="why"), "no"),
    errors.VersionMismatchError: (
        errors.VersionMismatchError("dcu", vendor="2.9.0", stock="2.10.0"),
        "dcu: vendor torch is 2.9.0, stock torch is 2.10.0; the base versions must be equal",
    ),
    errors.TamperedBundleError: (
        errors.TamperedBundleError("dcu", ["liba.so"]),
        "dcu: bundled files differ from their manifest: liba.so",
    ),
}


def documented_codes():
    return {int(code) for code in re.findall(r"^\| (\d+) \|", errors.__doc__ or "", re.MULTILINE)}


@pytest.mark.parametrize("kind", OWN, ids=lambda kind: kind.__name__)
def test_each_exit_code_must_be_documented(kind):
    assert kind.exit_code in documented_codes()


def test_each_documented_code_must_have_an_error_or_be_the_tools_own():
    without_error = {0, 1, 130, 143}
    assert documented_codes() - without_error == {kind.exit_code for kind in OWN}


def test_unrelated_refusals_must_not_share_an_exit_code():
    roots = [kind for kind in OWN if kind.__bases__ == (errors.BundleError,)]
    codes = [kind.exit_code for kind in roots]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(("error", "text"), EXAMPLES.values(), ids=[kind.__name__ for kind in EXAMPLES])
def test_the_text_must_be_whole_and_the_hint_must_name_a_step(error, text):
    assert str(error) == text
    assert error.hint
    assert error.hint[0].islower() or error.hint.startswith("--")


def test_every_error_must_have_an_example_and_a_text_of_its_own():
    assert set(EXAMPLES) == set(OWN)
    assert len({text for _, text in EXAMPLES.values()}) == len(EXAMPLES)
