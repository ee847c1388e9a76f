"""Making PyTorch know the device."""

from __future__ import annotations

import os
import sys

import torch
from torch import _register_device_module
from torch.utils import generate_methods_for_privateuse1_backend

from torch_fl._C import _install
from torch_fl.flagos._claim import DEVICE_TYPE
from torch_fl.flagos._exit import end_autograd_at_exit
from torch_fl.flagos.routing import apply_environment
from torch_fl.flagos.sharing import complete_dlpack, refuse_other_processes


def _register() -> int:
    """Register operators, hooks and this device module with PyTorch, and add `is_flagos`, `.flagos()` and the like.

    Importing this package has claimed the device's name. A second call changes nothing.

    Returns:
        The number of operators that run on the vendor's kernels through the boxed one.

    Raises:
        RuntimeError: PyTorch refused a registration.
        RoutingError: the environment asks for routes that cannot be followed.
    """
    boxed = int(_install())
    module = sys.modules["torch_fl.flagos"]
    if getattr(torch, DEVICE_TYPE, None) is not module:
        _register_device_module(DEVICE_TYPE, module)
        generate_methods_for_privateuse1_backend(for_storage=True)
        complete_dlpack()
        refuse_other_processes()
        end_autograd_at_exit()
        apply_environment(os.environ)
    return boxed
