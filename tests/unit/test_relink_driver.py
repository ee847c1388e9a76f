"""Relink and the driver stack: a torch that could not be imported is not made, or says what helps."""

from __future__ import annotations

import shutil

import pytest

from tests.support.commands import answer, command
from tests.support.fake_torch import CORE, DEVICE, NVRTC, TRY, FakeSite, complete_site, hooked_site
from tests.support.relinked import condition, do_relink
from torch_fl_boot.relink import Condition

INSTALL = "install the fake driver and SDK, or source the SDK's environment script"
RESTORE = f"{INSTALL}; or run `python -m torch_fl restore`, which gives torch its own libraries back"
CANNOT_OPEN = "libdriver.so.5: cannot open shared object file: No such file or directory"
MISSING = "fake: libraries of the driver stack were not found: libdriver.so.5"
STAGES = [pytest.param(False, id="incomplete"), pytest.param(True, id="absent")]


def needy(site: FakeSite) -> FakeSite:
    """A core that cannot be loaded without the driver, as those of vendors are."""
    needed = {**CORE, "libtorch_cpu.so": (*CORE["libtorch_cpu.so"], "libdriver.so.5")}
    site.write_bundle({**needed, **DEVICE, **NVRTC})
    return site


def lose_driver(site: FakeSite, *, whole: bool = True) -> None:
    if whole:
        shutil.rmtree(site.sdk)
    else:
        (site.sdk / "libdriver.so.5").unlink()


def relinked_without_driver(site: FakeSite, *, whole: bool = True) -> FakeSite:
    do_relink(needy(site))
    lose_driver(site, whole=whole)
    return site


@pytest.mark.parametrize("whole", STAGES)
def test_command_must_not_relink_where_the_driver_is_missing(tmp_path, whole):
    site = needy(complete_site(tmp_path))
    lose_driver(site, whole=whole)
    done = command(site, "relink")
    assert (done.returncode, done.stdout, condition(site)) == (3, "", Condition.STOCK)
    assert done.stderr.startswith(
        f"torch_fl: error: {site.torch_lib} was left as it is, since a relinked torch cannot be imported without the "
        f"driver: {MISSING}"
    )
    assert CANNOT_OPEN in done.stderr
    assert done.stderr.endswith(f"hint: {INSTALL}; or leave FLAGOS_CORE unset: preload needs no change on disk\n")
    assert site.run("import torch; print(torch.__version__)").stdout == "2.10.0+cpu\n"


def test_driver_on_the_library_path_must_do_for_the_command(tmp_path):
    site = needy(complete_site(tmp_path))
    moved = site.sdk.rename(tmp_path / "elsewhere")
    assert answer(site, "relink", environ={"LD_LIBRARY_PATH": str(moved)})["action"] == "relinked"


def test_optional_driver_and_a_stock_core_must_not_keep_the_command_from_relinking(tmp_path):
    """Torch can be imported then."""
    first = needy(complete_site(tmp_path / "vendor", driver=False))
    second = complete_site(tmp_path / "stock", core="stock")
    lose_driver(second)
    assert [command(site, "relink").returncode for site in (first, second)] == [0, 0]


@pytest.mark.parametrize("make", [complete_site, hooked_site], ids=["without-hook", "hook"])
def test_import_of_torch_fl_must_name_the_driver_and_restore(tmp_path, make):
    done = relinked_without_driver(make(tmp_path)).run(TRY)
    assert done.stdout == (
        f"TorchImportError\nfake: torch could not be imported: {CANNOT_OPEN}; torch is relinked to the bundle, and the "
        f"driver stack lacks libdriver.so.5, libdrivercore.so.1\nhint: {RESTORE}\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_plain_import_must_keep_the_loaders_error_and_say_in_one_line_what_helps(tmp_path):
    done = relinked_without_driver(hooked_site(tmp_path)).run("import torch")
    ours = [line for line in done.stderr.splitlines() if line.startswith("torch_fl: ")]
    assert done.stderr.endswith(f"\nOSError: {CANNOT_OPEN}\n")
    assert len(ours) == 1
    assert ours[0].startswith(f"torch_fl: warning: torch cannot be imported, since it is relinked: {MISSING}")
    assert ours[0].endswith(f"; hint: {RESTORE}")


def test_incomplete_driver_must_be_told_with_restore_too(tmp_path):
    site = relinked_without_driver(hooked_site(tmp_path), whole=False)
    ours = [line for line in site.run("import torch").stderr.splitlines() if line.startswith("torch_fl: ")]
    assert len(ours) == 1
    assert ours[0].startswith(
        f"torch_fl: warning: torch runs without flagos, if it starts at all: it is relinked: {MISSING}"
    )
    assert ours[0].endswith(f"; hint: {RESTORE}")
    done = site.run(TRY)
    assert done.stdout.startswith(f"DriverMissingError\n{MISSING}")
    assert done.stdout.endswith(f"hint: {RESTORE}\n")


def test_doctor_must_call_it_an_error_that_restore_mends(tmp_path):
    site = relinked_without_driver(complete_site(tmp_path))
    found = answer(site, "doctor", "--quick")
    errors = {(item["where"], item["hint"]) for item in found["findings"] if item["severity"] == "error"}
    assert (found["ok"], errors) == (False, {("libdriver.so.5", RESTORE)})
    assert command(site, "restore").returncode == 0
    assert answer(site, "doctor", "--quick")["ok"]
    assert site.run(TRY).stdout == "imported\n"


@pytest.mark.parametrize("order", ["import torch, torch_fl", "import torch_fl, torch"])
def test_import_that_was_asked_to_relink_must_say_that_it_did_not(tmp_path, order):
    site = needy(hooked_site(tmp_path))
    lose_driver(site)
    done = site.run(f"{order}; print(torch.__version__)", environ={"FLAGOS_CORE": "relink"})
    assert (done.returncode, done.stdout, condition(site)) == (0, "2.10.0+cpu\n", Condition.STOCK)
    assert done.stderr.startswith(f"torch_fl: warning: {site.torch_lib} was not relinked, as FLAGOS_CORE asks for, ")
    assert done.stderr.endswith(f"; hint: {INSTALL}\n")
    assert done.stderr.count("\n") == 1


def test_import_must_not_relink_where_the_driver_is_incomplete(tmp_path):
    site = needy(complete_site(tmp_path))
    lose_driver(site, whole=False)
    done = site.run(TRY + "import torch; print(torch.__version__)", environ={"FLAGOS_CORE": "relink"})
    assert done.stdout.startswith(f"DriverMissingError\n{MISSING}")
    assert done.stdout.endswith("\n2.10.0+cpu\n")
    assert condition(site) is Condition.STOCK


def test_forged_wheel_must_be_told_where_its_driver_is(tmp_path):
    site = needy(complete_site(tmp_path))
    site.manifest["forged"] = True
    site.write_manifest()
    lose_driver(site)
    hints = {
        item["hint"] for item in answer(site, "doctor", "--quick")["findings"] if item["where"] == "libdriver.so.5"
    }
    forged = "this wheel is forged: put the driver_dirs that `inv forge --backend fake` prints on LD_LIBRARY_PATH"
    assert hints == {forged}
    assert f"hint: {forged}; or leave FLAGOS_CORE unset" in command(site, "relink").stderr
