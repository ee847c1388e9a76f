"""`relink` and `restore` as commands, and what the other commands say of a relinked torch."""

from __future__ import annotations

import shutil

import pytest

from tests.support.commands import answer, command
from tests.support.fake_torch import CORE, FakeSite, complete_site


@pytest.fixture
def site(tmp_path) -> FakeSite:
    made: FakeSite = complete_site(tmp_path)
    return made


def relinked(site: FakeSite) -> FakeSite:
    done = command(site, "relink")
    assert (done.returncode, done.stderr) == (0, "")
    return site


def test_relink_and_restore_must_do_it_and_say_what_they_did(site):
    first, again = answer(site, "relink"), answer(site, "relink")
    assert (first["command"], first["action"], first["lib"]) == ("relink", "relinked", str(site.torch_lib))
    assert set(CORE) - set(first["names"]) <= {"libtorch_global_deps.so"}
    assert (again["action"], again["names"]) == ("nothing", [])
    assert (site.torch_lib / "libc10.so").is_symlink()
    back = command(site, "restore")
    assert back.returncode == 0
    assert back.stdout.startswith(f"{site.torch_lib}: restored: ")
    assert not (site.torch_lib / "libc10.so").is_symlink()


def test_torch_may_be_named(site):
    assert answer(site, "relink", "--torch", str(site.root / "torch"))["action"] == "relinked"
    assert answer(site, "restore", "--torch", str(site.root / "torch"))["action"] == "restored"


def test_refused_relink_must_exit_3_with_the_next_step(site):
    (site.bundle / "libshm.so").unlink()
    done = command(site, "relink")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"torch_fl: error: the bundle in {site.bundle} differs from its manifest:\n")
    assert "\nhint: reinstall torch_fl" in done.stderr


def test_status_must_tell_a_relinked_torch(site):
    status = answer(relinked(site), "status")
    assert (status["state"], status["usable"], status["problems"]) == ("relinked", True, [])


def test_status_must_tell_a_relink_that_the_next_import_makes(site):
    assert answer(site, "status", environ={"FLAGOS_CORE": "relink"})["state"] == "relink asked for"


def test_doctor_must_find_nothing_wrong_with_a_relinked_torch(site):
    found = answer(relinked(site), "doctor")
    assert {item["code"] for item in found["findings"]} == {"R040", "R050"}


def test_links_that_lead_nowhere_must_be_an_error(site):
    relinked(site)
    shutil.rmtree(site.bundle)
    done = command(site, "status")
    assert done.returncode == 1
    assert done.stdout.startswith("state      dangling, hook ")
    assert f"error R060 {site.torch_lib}: " in done.stdout
    assert "python -m torch_fl restore" in done.stdout


def test_torch_replaced_since_the_relink_must_be_a_warning(site):
    relinked(site)
    (site.torch_lib / "libshm.so").unlink()
    site.library(site.torch_lib / "libshm.so", needed=("libc10.so",), payload=b"another build")
    status = answer(site, "status")
    assert (status["state"], status["usable"]) == ("stale", True)
    assert [(item["code"], item["severity"]) for item in status["problems"]] == [("R060", "warning")]
