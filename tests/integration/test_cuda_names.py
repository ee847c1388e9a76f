"""What users of torch.cuda know by name: here under the same name and arguments, or absent with a reason."""

from __future__ import annotations

import inspect

import pytest
import torch

pytestmark = pytest.mark.device

KNOWN = sorted({*torch.cuda.__all__, "AcceleratorError", "OutOfMemoryError"})
FUNCTIONS = [name for name in KNOWN if inspect.isfunction(getattr(torch.flagos, name, None))]


@pytest.mark.parametrize("name", KNOWN)
def test_name_of_the_cuda_module_must_be_here_or_say_why_not(name):
    try:
        assert getattr(torch.flagos, name) is not None
    except AttributeError as err:
        assert f"has no attribute '{name}': " in str(err)  # noqa: PT017 - either is right


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_must_take_the_arguments_that_the_cuda_module_gives_it(name):
    theirs = inspect.signature(getattr(torch.cuda, name)).parameters.values()
    named = [parameter.name for parameter in theirs if parameter.kind is not parameter.VAR_KEYWORD]
    assert [*inspect.signature(getattr(torch.flagos, name)).parameters] == named


def test_memory_that_the_device_has_not_must_raise_the_error_of_that_name(device):
    _, total = torch.flagos.mem_get_info(device)
    with pytest.raises(torch.flagos.OutOfMemoryError):
        torch.empty(2 * total, dtype=torch.uint8, device=device)
    assert torch.ones(2, device=device).sum().item() == 2


def test_cache_of_pinned_memory_must_be_emptied_or_said_not_to_be_there(device):
    if not hasattr(torch.accelerator, "empty_host_cache"):
        pytest.skip(f"torch {torch.__version__} has no torch.accelerator.empty_host_cache")
    held = torch.arange(1000.0).pin_memory()
    try:
        torch.accelerator.empty_host_cache()
    except NotImplementedError as err:
        assert "pinned memory" in str(err)  # noqa: PT017 - an allocator without a cache is the vendor's choice
    assert held.to(device)[-1].item() == 999
