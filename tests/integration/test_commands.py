"""`python -m torch_fl status|doctor|maps` of an installed wheel, by its JSON; the same answers on any backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch_fl  # isort: skip
import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND_SECONDS = 600
PACKAGE = Path(torch_fl.__file__).resolve().parent
FINDING = {"code": str, "severity": str, "where": str, "found": str, "expected": str, "hint": str}
STATUS = {
    "usable": bool, "state": str, "hook": str, "backend": str, "core": str, "forged": bool, "version": str,
    "package": str, "vendor_torch": str, "sdk_version": str, "torch": str, "torch_package": str, "python": str,
    "executable": str, "bundle": str, "bundle_files": int, "bundle_bytes": int, "variables": dict, "problems": list,
}  # fmt: skip
DIAGNOSIS = {"ok": bool, "hashed": bool, "status": dict, "findings": list, "needs": list, "devices": list}
NEED = {"library": str, "soname": str, "path": (str, type(None)), "rule": str}
DEVICE = {"index": int, "name": str, "free_bytes": int, "total_bytes": int}
MAPS = {"process": (int, type(None)), "core": str, "libraries": list, "problems": list}
MAPPED = {"name": str, "paths": list, "owners": list}


def fits(value: dict[str, Any], shape: dict[str, Any]) -> bool:
    """Whether an object has exactly these keys, of these types."""
    return value.keys() == shape.keys() and all(isinstance(value[key], kind) for key, kind in shape.items())


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """`command("status")`: run it, with the exit code it must have, and return its JSON without the common keys."""

    def run(name: str, *arguments: str, code: int = 0) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "torch_fl", name, *arguments, "--json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert (done.returncode, done.stderr) == (code, ""), f"{done.stdout}{done.stderr}"
        content: dict[str, Any] = json.loads(done.stdout)
        assert (content.pop("schema"), content.pop("command")) == (1, name)
        return content

    return run


def test_status_must_agree_with_the_running_plugin(command):
    status, info = command("status"), torch_fl.bundle()
    assert fits(status, STATUS)
    assert status["usable"]
    for key in ("backend", "forged", "vendor_torch"):
        assert status[key] == getattr(info, key), key
    assert (status["version"], status["torch"]) == (torch_fl.__version__, torch.__version__)
    assert Path(status["package"]).resolve() == PACKAGE
    assert status["bundle_files"] == len(info.files)


def test_doctor_must_find_no_error_where_the_plugin_runs(command):
    found = command("doctor")
    assert fits(found, DIAGNOSIS)
    assert fits(found["status"], STATUS)
    assert all(fits(item, FINDING) for item in found["findings"])
    assert all(fits(item, NEED) for item in found["needs"])
    assert all(fits(item, DEVICE) for item in found["devices"])
    assert [item for item in found["findings"] if item["severity"] == "error"] == []
    assert (found["ok"], found["hashed"]) == (True, bool(torch_fl.bundle().files) or found["hashed"])


def test_doctor_must_resolve_what_this_process_has_mapped(command):
    """Of each library the simulated loader finds the very file that the real one took."""
    mapped = {path for paths in torch_fl.mapped_libraries().values() for path in paths}
    names = {Path(path).name for path in mapped}
    for need in command("doctor", "--quick")["needs"]:
        real = need["path"] and os.path.realpath(need["path"])
        if real and Path(real).name in names:
            assert real in mapped, f"{need['library']} needs {need['soname']}"


@pytest.mark.device
def test_doctor_must_see_the_devices_that_torch_sees(command):
    devices = command("doctor", "--quick")["devices"]
    assert [item["index"] for item in devices] == list(range(torch.flagos.device_count()))
    for item in devices:
        assert item["name"] == torch.flagos.get_device_name(item["index"])
        assert item["total_bytes"] == torch.flagos.mem_get_info(item["index"])[1]


def test_maps_of_this_process_must_name_whose_core_runs(command):
    found = command("maps", str(os.getpid()))
    assert fits(found, MAPS)
    assert all(fits(item, MAPPED) for item in found["libraries"])
    expected = {"vendor": "bundle", "stock": "stock torch"}[torch_fl.bundle().core]
    assert (found["core"], found["problems"], found["process"]) == (expected, [], os.getpid())
    owners = {owner for item in found["libraries"] for owner in item["owners"] if item["name"] != "libgomp.so.1"}
    assert owners <= {"bundle", "plugin", "stock torch"}


def test_maps_of_a_child_must_show_no_mixed_core(command):
    found = command("maps")
    assert found["core"] in {"bundle", "stock torch"}
    assert found["problems"] == []


@pytest.mark.usefixtures("installed_wheel")
def test_script_of_the_wheel_must_be_installed():
    script = Path(sys.executable).with_name("torch-fl")
    done = subprocess.run([sys.executable, script, "status"], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("state  ")
