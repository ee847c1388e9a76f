"""The commands on an installed wheel whose files, driver or torch are not as they should be."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.pipeline import Site, rewrite
from tests.support.tiny_elf import ElfSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

REFUSED = """
try:
    import torch_fl
except ImportError as err:
    print(err)
import torch
print(torch.ones(2).sum().item())
"""


@dataclass(frozen=True)
class Answer:
    """The exit code and the JSON of a command."""

    code: int
    content: dict[str, Any]

    def findings(self, severity: str) -> dict[str, dict[str, Any]]:
        """Return the findings of one severity by code."""
        return {item["code"]: item for item in self.content["findings"] if item["severity"] == severity}


@pytest.fixture(params=["metax", "cuda"], ids=["vendor-core", "stock-core"])
def site(request, installed) -> Site:
    made: Site = installed(request.param)
    return made


def environ_of(site: Site, *first: Path) -> dict[str, str]:
    """Return an environment with the driver's folders on LD_LIBRARY_PATH, and others before them."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "PYTHON", "FLAGOS_"))}
    path = os.pathsep.join(filter(None, (*map(str, first), site.library_path)))
    return {**kept, "LD_LIBRARY_PATH": path} if path else kept


def ask(site: Site, *arguments: str, first: tuple[Path, ...] = ()) -> Answer:
    done = subprocess.run(
        [site.python, "-m", "torch_fl", *arguments, "--json"],
        cwd="/",
        env=environ_of(site, *first),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return Answer(code=done.returncode, content=json.loads(done.stdout))


def manifest(site: Site) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((site.package / "_bundle.json").read_text())
    return content


@pytest.fixture
def changed_byte(site: Site) -> Iterator[Path]:
    """Change the last byte of a bundled library, which belongs to no table of the loader's; put it back afterwards."""
    library = site.package / manifest(site)["bundle_dir"] / "libc10_cuda.so"
    data = library.read_bytes()
    rewrite(library, data[:-1] + bytes([data[-1] ^ 1]))
    yield library
    rewrite(library, data)


def test_healthy_installation_must_have_no_errors(site):
    found = ask(site, "doctor")
    assert (found.code, found.findings("error")) == (0, {})
    assert found.content["hashed"]


def test_changed_byte_must_be_found_by_its_hash_though_the_import_works(site, changed_byte):
    found = ask(site, "doctor")
    assert found.code == 1
    assert {code: item["where"] for code, item in found.findings("error").items()} == {"R011": str(changed_byte)}
    assert ask(site, "doctor", "--quick").code == 0


def test_doctor_and_import_must_name_the_same_symbols_of_a_driver_that_is_too_old(site, tmp_path):
    """A driver without any function stands first on the library path."""
    needed = {name for file in manifest(site)["files"] for name in file["needed"]}
    soname = next(name for name in manifest(site)["runtime_libraries"] if name in needed)
    ElfSpec(soname=soname, machine=platform.machine()).write(tmp_path / soname)
    finding = ask(site, "doctor", "--quick", first=(tmp_path,)).findings("error")["R030"]
    symbols = [line for line in finding["found"].splitlines()[1:] if "libc10_cuda.so" in line]
    assert len(symbols) > 1
    done = subprocess.run(
        [site.python, "-c", REFUSED],
        cwd="/",
        # Torch is imported after the refusal, and torch's entry point must not try the plugin again.
        env={**environ_of(site, tmp_path), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "undefined symbol: " in done.stdout
    listed = done.stdout.partition("no library in this process provides:\n")[2]
    assert (
        set(symbols) <= {line.strip() for line in listed.splitlines()} or "more; `python -m torch_fl doctor`" in listed
    )
    assert done.stdout.endswith("\n2.0\n")


def test_relinked_torch_must_be_told_and_found_healthy(site):
    assert ask(site, "relink").content["action"] == "relinked"
    try:
        assert ask(site, "status").content["state"] == "relinked"
        assert ask(site, "doctor", "--quick").findings("error") == {}
        maps = ask(site, "maps").content
        owners = {"vendor": "bundle", "stock": "stock torch"}
        assert (maps["core"], maps["problems"]) == (owners[manifest(site)["core"]], [])
    finally:
        assert ask(site, "restore").content["action"] == "restored"
    assert ask(site, "status").content["state"] == "preload"
