"""Refusals: each has an exit code that the module's table lists, a hint, and a text of its own."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

import pytest

from bundle import errors
from bundle.space import DEMO, outlook

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
        errors.FileAccessError(OSError(13, "Permission denied", "dist/x.whl")),
        "dist/x.whl: Permission denied",
    ),
    errors.NoSpaceError: (
        errors.NoSpaceError("dcu: the wheel", needed=2_000_000, free=1_000_000, where=Path("/d"), hint="make room"),
        "dcu: the wheel needs 2 MB in /d, but only 1 MB are free",
    ),
    errors.PassedOnError: (errors.PassedOnError("metax: no", hint="do it", exit_code=9), "metax: no"),
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


def copy_that_fails(*whys):
    """The error of shutil.copytree over files that each failed for its reason."""
    return shutil.Error([(f"/from/{number}", f"/gone/to/{number}", why) for number, why in enumerate(whys)])


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        pytest.param(OSError(28, "No space left on device", "/gone/x"), "/gone/x: No space left on device", id="file"),
        pytest.param(OSError(122, "Disk quota exceeded", "/gone/x"), "/gone/x: Disk quota exceeded", id="quota"),
        pytest.param(
            copy_that_fails("[Errno 28] No space left on device: '/from/0' -> '/gone/to/0'", "[Errno 28] x", "y"),
            "/from/0 -> /gone/to/0: No space left on device, and so for 2 more",
            id="tree",
        ),
    ],
)
def test_full_disk_must_name_the_file_the_free_space_and_the_next_step(cause, expected):
    refusal = errors.FileAccessError(cause)
    assert re.fullmatch(f"{re.escape(expected)}; free now: \\d+ MB in /", str(refusal))
    assert refusal.hint == errors.FULL_DISK
    assert "TMPDIR" in refusal.hint


def test_full_disk_without_a_file_name_must_name_all_places_that_are_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said = str(errors.FileAccessError(OSError(28, "No space left on device")))
    assert re.fullmatch(
        rf"a file: No space left on device; free now: \d+ MB in {Path.cwd()}, \d+ MB in {tmp_path}", said
    )


def test_no_folder_for_temporary_files_must_be_told_as_a_full_disk(monkeypatch):
    # Tempfile calls a missing file what may well be a full disk.
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/proc"])
    with pytest.raises(FileNotFoundError) as caught:
        tempfile.mkdtemp()
    refusal = errors.FileAccessError(caught.value)
    with pytest.raises(errors.FileAccessError, match="No usable temporary directory"):
        outlook(DEMO, Path("/nowhere"))
    assert re.fullmatch(r"a file: No usable temporary directory found in .*; free now: \d+ MB in .*", str(refusal))
    assert refusal.hint == errors.FULL_DISK


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        pytest.param(copy_that_fails("[Errno 13] Permission denied: 'x'"), "Permission denied", id="tree"),
        pytest.param(copy_that_fails("no such thing"), "no such thing", id="tree-without-errno"),
        pytest.param(
            shutil.Error("Destination path 'x' already exists"), "Destination path 'x' already exists", id="move"
        ),
        pytest.param(shutil.Error([]), "[]", id="empty"),
        pytest.param(shutil.SameFileError("'x' and 'x' are the same file"), "are the same file", id="same"),
        pytest.param(BlockingIOError(), "BlockingIOError", id="nothing-said"),
    ],
)
def test_other_refusals_of_the_system_must_be_told_in_its_words(cause, expected):
    refusal = errors.FileAccessError(cause)
    assert str(refusal).endswith(expected)
    assert refusal.hint == errors.FileAccessError.hint
    assert "Errno" not in str(refusal)


@pytest.mark.parametrize(
    "said",
    [
        "/usr/bin/ld: final link failed: No space left on device",
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
        "write error: disk quota exceeded",
    ],
)
def test_program_that_dies_of_a_full_disk_must_keep_that_hint_whatever_its_caller_suggests(said):
    error = errors.ToolError("ld exited with 1", output=f"{said}\nmuch else")
    error.suggest("look at the build tree")
    assert error.hint == errors.FULL_DISK
    other = errors.ToolError("ld exited with 1", output="undefined reference")
    other.suggest("look at the build tree")
    assert other.hint == "look at the build tree"


def test_every_error_must_have_an_example_and_a_text_of_its_own():
    assert set(EXAMPLES) == set(OWN)
    assert len({text for _, text in EXAMPLES.values()}) == len(EXAMPLES)
