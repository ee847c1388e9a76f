"""The device type that another plugin has taken: one error, torch usable after it."""

from __future__ import annotations

from pathlib import Path

from tests.support.fake_torch import TRY, FakeSite, complete_site

CLAIM = Path(__file__).parents[2] / "torch_fl/flagos/_claim.py"
# What PyTorch offers for the name, in a torch in which another plugin has used it.
TAKEN = """
import sys, types
_C = types.ModuleType("torch._C")
_C._get_privateuse1_backend_name = lambda: "npu"
utils = types.ModuleType("torch.utils")
utils.rename_privateuse1_backend = None
sys.modules["torch._C"], sys.modules["torch.utils"] = _C, utils
"""


def taken_site(tmp_path: Path) -> FakeSite:
    site = complete_site(tmp_path)
    with (site.root / "torch/__init__.py").open("a") as stream:
        stream.write(TAKEN)
    folder = site.root / "torch_fl/flagos"
    (folder / "_claim.py").write_bytes(CLAIM.read_bytes())
    (folder / "__init__.py").write_text("from torch_fl.flagos import _claim\n")
    return site


def refusal(installed: str) -> str:
    return (
        "DeviceTypeTakenError\ntorch_fl cannot register the device 'flagos': another plugin has already claimed "
        f"PyTorch's one PrivateUse1 device type as 'npu'{installed}\n"
        "hint: use one of the two per process; if the other one loads by itself, set TORCH_DEVICE_BACKEND_AUTOLOAD=0 "
        "before Python starts\n"
    )


def test_device_type_that_is_taken_must_be_refused_and_leave_torch_usable(tmp_path):
    done = taken_site(tmp_path).run(TRY + TRY + "import torch\nprint(torch.__version__)")
    assert done.stdout == refusal("") * 2 + "2.10.0+cpu\n", done.stderr


def test_plugins_that_load_by_themselves_must_be_named(tmp_path):
    site = taken_site(tmp_path)
    metadata = site.root / "torch_npu-2.10.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.10.0\n")
    entries = "torch_npu = torch_npu:_autoload\nflagos = torch_fl_boot.autoload:load\n"
    (metadata / "entry_points.txt").write_text(f"[torch.backends]\n{entries}")
    plugins = "; installed plugins beside torch_fl: torch_npu (torch_npu:_autoload)"
    # There is no such plugin for torch to load.
    assert site.run(TRY, environ={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}).stdout == refusal(plugins)
