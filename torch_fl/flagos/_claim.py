"""The name `flagos`: PyTorch has one PrivateUse1 device type per process, and one name for it.

Importing this module claims the name. The package imports it before everything else, because the compiled module may
only be loaded afterwards.
"""

from __future__ import annotations

from torch._C import _get_privateuse1_backend_name
from torch.utils import rename_privateuse1_backend

from torch_fl_boot.errors import DeviceTypeTakenError
from torch_fl_boot.plugins import other_plugins

DEVICE_TYPE = "flagos"
_UNCLAIMED = "privateuseone"


def claim_device_name() -> None:
    """Name PyTorch's PrivateUse1 device type `flagos`.

    This must happen before the compiled module is loaded: two plugins that both register a fallback for PrivateUse1 end
    the process, and no `except` can catch that.

    Raises:
        DeviceTypeTakenError: another plugin has given the device type its name already.
    """
    name = _get_privateuse1_backend_name()
    if name == DEVICE_TYPE:
        return
    if name != _UNCLAIMED:
        raise DeviceTypeTakenError(name, wanted=DEVICE_TYPE, plugins=other_plugins())
    rename_privateuse1_backend(DEVICE_TYPE)


claim_device_name()
