"""Each damage that `import torch_fl` refuses: the full text, and stock torch importable after it in that process."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.fake_torch import CORE, DEVICE, MACHINE, PYTHON, THEN_TORCH, TRY, FakeSite, complete_site
from torch_fl_boot.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MANIFEST_KEYS = {field.name for field in fields(Manifest)}
OTHER_MACHINE = "aarch64" if MACHINE == "x86_64" else "x86_64"
INDEX = "https://download.pytorch.org/whl/cpu"


def change(site: FakeSite, **fields: object) -> bool:
    site.manifest.update(fields)
    site.write_manifest()
    return True


def rename(site: FakeSite, old: str, new: str) -> bool:
    """Give a file another name in the manifest alone."""
    for entry in (*site.manifest["files"], *site.manifest["load"]):
        entry["name"] = new if entry["name"] == old else entry["name"]
    return change(site)


def drop(path: Path) -> bool:
    path.unlink()
    return True


def write_text(site: FakeSite, text: str) -> None:
    (site.root / "torch_fl/_bundle.json").write_text(text)


def zero_dynamic(path: Path) -> None:
    """Same size, valid ELF header, empty dynamic section: the loader itself would crash on it."""
    data = bytearray(path.read_bytes())
    second_header = 64 + 2 * 56
    at, size = (int.from_bytes(data[second_header + o : second_header + o + 8], "little") for o in (8, 32))
    data[at : at + size] = bytes(size)
    path.write_bytes(data)


def replace(site: FakeSite, name: str, **spec: Any) -> None:
    """Another library under the same name, and a manifest that describes it."""
    entry = next(entry for entry in site.manifest["files"] if entry["name"] == name)
    spec = {"needed": tuple(entry["needed"]), "runpath": ":".join(entry["runpath"]), **spec}
    path = site.library(site.bundle / name, **spec)
    entry["size"] = path.stat().st_size
    site.write_manifest()


REINSTALL = "reinstall torch_fl: pip install --force-reinstall --no-deps <the wheel>"
DAMAGED_RECORD = "the wheel is damaged or of another version; reinstall torch_fl"
RELOAD = "the loader's words name the file; reinstall torch_fl if it is one of the bundle's"
INSTALL_DRIVER = "install the fake driver and SDK, or source the SDK's environment script"
CANNOT_OPEN = "cannot open shared object file: No such file or directory"
MANIFEST = "{site}/torch_fl/_bundle.json: "
DIFFERS = "the bundle in {site}/torch_fl/lib_fake differs from its manifest:\n  "
NOT_LOADED = "fake: the bundle could not be loaded: "
NO_DRIVER = (
    "fake: libraries of the driver stack were not found: {soname}; looked in {site}/torch_fl/lib_fake, {sdk}, "
    "the directories of ld.so.conf\n  {soname}: " + CANNOT_OPEN
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A damage, and the refusal it must lead to; `{site}` and the like are filled in."""

    damage: Callable[[FakeSite], object]
    error: str
    what: str
    hint: str

    def text(self, site: FakeSite) -> str:
        return fill(f"{self.error}\n{self.what}\nhint: {self.hint}\n", site)


FAULTS = {
    "no-identity": Fault(
        damage=lambda site: drop(site.root / "torch_fl/_build.json"),
        error="MissingIdentityError",
        what="torch_fl in {site}/torch_fl has no _build.json, so it does not know what it was built for",
        hint="the wheel is incomplete; rebuild it with `nox -s wheel-<backend>`, or reinstall it",
    ),
    "manifest-not-json": Fault(
        damage=lambda site: write_text(site, "{"),
        error="MalformedRecordError",
        what=MANIFEST
        + "cannot be read: not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        hint=DAMAGED_RECORD,
    ),
    "manifest-of-another-schema": Fault(
        damage=lambda site: write_text(site, json.dumps({"schema": 2})),
        error="MalformedRecordError",
        what=MANIFEST + "schema 2, expected 1",
        hint=DAMAGED_RECORD,
    ),
    "manifest-without-files": Fault(
        damage=lambda site: write_text(site, json.dumps({"schema": 1, "load": []})),
        error="MalformedRecordError",
        what=MANIFEST
        + "not a bundle manifest of schema 1: "
        + ", ".join(f"{key} is missing" for key in sorted(MANIFEST_KEYS - {"schema", "load"})),
        hint=DAMAGED_RECORD,
    ),
    "manifest-loads-unlisted-file": Fault(
        damage=lambda site: change(site, load=[{"name": "libghost.so", "when": "always"}]),
        error="MalformedRecordError",
        what=MANIFEST + "files to load that are not listed: libghost.so; libraries of torch that are listed and never "
        "loaded: libc10.so, libc10_cuda.so, libcaffe2_nvrtc.so, libshm.so, libtorch.so, libtorch_cpu.so, "
        "libtorch_cuda.so, libtorch_global_deps.so, libtorch_python.so",
        hint=DAMAGED_RECORD,
    ),
    "manifest-nested-too-deeply": Fault(
        damage=lambda site: write_text(site, "[" * 100_000),
        error="MalformedRecordError",
        what=MANIFEST + "cannot be read: not JSON: maximum recursion depth exceeded while decoding a JSON array from a "
        "unicode string",
        hint=DAMAGED_RECORD,
    ),
    "manifest-with-a-number-for-text": Fault(
        damage=lambda site: change(site, python=3),
        error="MalformedRecordError",
        what=MANIFEST + "not a bundle manifest of schema 1: python is 3, expected text",
        hint=DAMAGED_RECORD,
    ),
    "manifest-with-an-unknown-core": Fault(
        damage=lambda site: change(site, core="other"),
        error="MalformedRecordError",
        what=MANIFEST + "core other, expected one of vendor, stock",
        hint=DAMAGED_RECORD,
    ),
    "manifest-whose-folder-lies-elsewhere": Fault(
        damage=lambda site: change(site, bundle_dir="../lib_fake"),
        error="MalformedRecordError",
        what=MANIFEST + "not plain names: '../lib_fake'",
        hint=DAMAGED_RECORD,
    ),
    "manifest-whose-names-cannot-be": Fault(
        damage=lambda site: rename(site, "libshm.so", "a\0b"),
        error="MalformedRecordError",
        what=MANIFEST + "not plain names: 'a\\x00b'",
        hint=DAMAGED_RECORD,
    ),
    "manifest-whose-folder-is-its-parent": Fault(
        damage=lambda site: change(site, bundle_dir=".."),
        error="MalformedRecordError",
        what=MANIFEST + "not plain names: '..'",
        hint=DAMAGED_RECORD,
    ),
    "manifest-gone": Fault(
        damage=lambda site: drop(site.root / "torch_fl/_bundle.json"),
        error="DamagedBundleError",
        what=DIFFERS + "_bundle.json: missing",
        hint=REINSTALL,
    ),
    "bundle-of-another-backend": Fault(
        damage=lambda site: change(site, backend="other"),
        error="MalformedRecordError",
        what=MANIFEST + "the bundle is for backend other, the plugin was compiled for fake",
        hint=DAMAGED_RECORD,
    ),
    "another-python": Fault(
        damage=lambda site: change(site, python="cp39"),
        error="IncompatibleError",
        what="torch_fl was built for Python 3.9, found Python {python} at {executable}",
        hint="install the torch_fl wheel for Python {python}, or use Python 3.9",
    ),
    "another-machine": Fault(
        damage=lambda site: change(site, machine="riscv64"),
        error="IncompatibleError",
        what="torch_fl was built for riscv64, found {machine}",
        hint="install the torch_fl wheel for {machine}",
    ),
    "another-torch": Fault(
        damage=lambda site: change(site, torch="2.11.0+cpu"),
        error="TorchMismatchError",
        what="torch_fl was built for torch 2.11.0, found torch 2.10.0+cpu in {site}/torch",
        hint=f"pip install torch==2.11.0+cpu --index-url {INDEX}, or install torch_fl built for 2.10.0+cpu",
    ),
    "unknown-strategy": Fault(
        damage=lambda site: change(site, strategy="magic"),
        error="StrategyError",
        what="FLAGOS_CORE='magic' is not supported; this version of torch_fl knows: preload, relink",
        hint="unset FLAGOS_CORE, or set it to one of these",
    ),
    "file-missing": Fault(
        damage=lambda site: drop(site.bundle / "libshm.so"),
        error="DamagedBundleError",
        what=DIFFERS + "libshm.so: missing",
        hint=REINSTALL,
    ),
    "files-truncated-and-missing": Fault(
        damage=lambda site: ((site.bundle / "libc10.so").write_bytes(b"\x7fELF"), drop(site.bundle / "libtorch.so")),
        error="DamagedBundleError",
        what=DIFFERS + "libc10.so: 4 bytes, expected {size:libc10.so}\n  libtorch.so: missing",
        hint=REINSTALL,
    ),
    "file-zeroed": Fault(
        damage=lambda site: (site.bundle / "libshm.so").write_bytes(bytes((site.bundle / "libshm.so").stat().st_size)),
        error="DamagedBundleError",
        what=DIFFERS + "libshm.so: not a 64-bit little-endian ELF file",
        hint=REINSTALL,
    ),
    "dynamic-section-zeroed": Fault(
        damage=lambda site: zero_dynamic(site.bundle / "libshm.so"),
        error="DamagedBundleError",
        what=DIFFERS + "libshm.so: empty dynamic section",
        hint=REINSTALL,
    ),
    "file-renamed-inside": Fault(
        damage=lambda site: replace(site, "libshm.so", soname="libshm-01234567.so"),
        error="DamagedBundleError",
        what=DIFFERS + "libshm.so: DT_SONAME libshm-01234567.so, expected libshm.so",
        hint=REINSTALL,
    ),
    "file-for-another-machine": Fault(
        damage=lambda site: replace(site, "libshm.so", machine=OTHER_MACHINE),
        error="DamagedBundleError",
        what=DIFFERS + f"libshm.so: built for {OTHER_MACHINE}, expected {MACHINE}",
        hint=REINSTALL,
    ),
    "file-with-other-needs": Fault(
        damage=lambda site: replace(site, "libshm.so", needed=("libc10.so",)),
        error="DamagedBundleError",
        what=DIFFERS + "libshm.so: DT_NEEDED libc10.so, expected libtorch_cpu.so libc10.so",
        hint=REINSTALL,
    ),
    "driver-from-packages-missing": Fault(
        damage=lambda site: (drop(site.sdk / "libdriver.so.5"), change(site, requirements=["nvidia-fake>=3"])),
        error="DriverMissingError",
        what=NO_DRIVER.replace("{soname}", "libdriver.so.5"),
        hint=INSTALL_DRIVER + ", and pip install nvidia-fake>=3",
    ),
    "driver-incomplete": Fault(
        damage=lambda site: site.write_driver("libdriver.so.5", needed=("libdriverdeep.so.2",)),
        error="DriverMissingError",
        what=NO_DRIVER.replace("{soname}", "libdriverdeep.so.2"),
        hint=INSTALL_DRIVER,
    ),
    "third-party-missing": Fault(
        damage=lambda site: site.write_bundle({**CORE, **DEVICE, "libmagma.so": ("libmkl.so.1", "libtorch_cuda.so")}),
        error="PreloadError",
        what=NOT_LOADED + "libmkl.so.1: " + CANNOT_OPEN,
        hint=RELOAD,
    ),
    "symbol-missing-in-the-last-library": Fault(
        damage=lambda site: replace(site, "libcaffe2_nvrtc.so", undefined=("cuTooNew",)),
        error="PreloadError",
        what=NOT_LOADED + "{site}/torch_fl/lib_fake/libcaffe2_nvrtc.so: undefined symbol: cuTooNew\n"
        "no library in this process provides:\n  cuTooNew, needed by libcaffe2_nvrtc.so",
        hint="the driver stack or a library on LD_LIBRARY_PATH is older than the bundle needs (the bundle was built "
        "with SDK 7.1); update it",
    ),
}


def fill(text: str, site: FakeSite) -> str:
    sizes = {entry["name"]: entry["size"] for entry in site.manifest["files"]}
    facts = {
        "site": site.root, "sdk": site.sdk, "machine": MACHINE, "python": PYTHON,
        "executable": sys.executable, "size:libc10.so": sizes["libc10.so"],
    }  # fmt: skip
    for name, value in facts.items():
        text = text.replace("{" + name + "}", str(value))
    return text


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_refusal_must_say_what_to_do_twice_and_leave_torch_importable(tmp_path, fault):
    site = complete_site(tmp_path)
    fault.damage(site)
    done = site.run(TRY * 2 + THEN_TORCH)
    assert done.stdout == fault.text(site) * 2 + "---\n2.10.0+cpu\n", done.stderr
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("fault", ["driver-incomplete", "third-party-missing", "file-missing"])
def test_failure_must_be_remembered_without_a_second_dlopen(tmp_path, fault):
    site = complete_site(tmp_path)
    FAULTS[fault].damage(site)
    audit = "import sys\nopened = []\nsys.addaudithook(lambda event, args: opened.append(args) if event == "
    once = TRY + "\nfirst = len(opened)\n"
    done = site.run(f"{audit}'ctypes.dlopen' else None)\n{once}{TRY * 3}\nprint(len(opened) - first)")
    assert done.stdout == FAULTS[fault].text(site) * 4 + "0\n"
    assert (done.returncode, done.stderr) == (0, "")
