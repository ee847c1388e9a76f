"""A package that looks like FlagGems to the route: it takes the vendor's tensors only, as FlagGems does."""

from __future__ import annotations

OPERATORS = """
import gc
import weakref

import torch

seen, kept, gone = [], [], []


def on_vendor(*tensors):
    for tensor in tensors:
        assert tensor.device.type == "cuda", f"Expected a cuda device, but got: {tensor.device}"
        assert tensor.device.index is not None and not tensor.requires_grad and type(tensor) is torch.Tensor


def add(A, B, *, alpha=1):
    on_vendor(A)
    if isinstance(B, torch.Tensor):
        on_vendor(B)
    seen.append((type(B).__name__, alpha))
    return torch.add(A, B, alpha=alpha)


def add_(A, B):
    on_vendor(A, B)
    A.copy_(torch.add(A, B))


def mul_(A, B):
    on_vendor(A, B)
    return A.mul_(B)


def add_out(A, B, *, out):
    on_vendor(A, B, out)
    out.resize_(A.shape)
    return torch.mul(A, 10, out=out)


def sum_dim(inp, dim=None, keepdim=False, *, dtype=None):
    on_vendor(inp)
    seen.append(("sum_dim", dim))
    return torch.sum(inp, dim, keepdim, dtype=dtype)


def cat(tensors, dim=0):
    on_vendor(*tensors)
    seen.append(("cat", len(tensors), dim))
    return torch.cat([tensors[1], tensors[0]], dim)


def index(inp, indices):
    on_vendor(inp, *[one for one in indices if one is not None])
    seen.append(("index", [one is None for one in indices]))
    return torch.ops.aten.index(inp, indices)


def layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    on_vendor(x, *[one for one in (weight, bias) if one is not None])
    seen.append(("layer_norm", weight is None, bias is None))
    return list(torch.native_layer_norm(x, normalized_shape, weight, bias, eps))


def max_dim(inp, dim, keepdim=False):
    on_vendor(inp)
    return inp.amax(dim, keepdim), inp.argmax(dim, keepdim)


def min_dim(inp, dim, keepdim=False):
    return inp.amin(dim, keepdim)


def zeros(size, *, dtype=None, layout=None, device=None, pin_memory=None):
    assert device.type == "cuda"
    seen.append(("zeros", device.index))
    # Stock torch's own core has no torch.cuda, and so no factories for its device.
    return torch.flagos.to_vendor(torch.full(size, 7, dtype=dtype, device=f"flagos:{device.index}"))


def uniform_(self, from_=0.0, to=1.0, *, generator=None):
    on_vendor(self)
    assert generator is None or generator.device.type == "cuda"
    return self.uniform_(from_, to, generator=generator)


def gelu(A):
    on_vendor(A)
    return A + 1


def neg(A):
    on_vendor(A)
    kept.append(A)
    return -A


def abs(A):
    return A


def exp(A):
    return A.t()


def sin(A):
    ring = [A]
    ring.append(ring)
    gone.append(weakref.ref(A))
    return torch.sin(A)


def tan_(A):
    A.fill_(5)
    raise KeyError("from the operator")


def cos_(A):
    return A.clone()


def split(self):
    half = self + 1
    return half, half


def device(A):
    on_vendor(A)
    seen.append((A.device.index, torch.flagos.current_device()))
    return torch.sqrt(A)


def no_such_call(A, B, C):
    raise AssertionError
"""

LIST = """
from flag_gems.ops import *
from flag_gems import ops
_FULL_CONFIG = (
    ("add.Tensor", ops.add),
    ("add.Tensor", ops.no_such_call),
    ("add_.Tensor", ops.add_),
    ("mul_.Tensor", ops.mul_),
    ("add.out", ops.add_out),
    ("sum.dim_IntList", ops.sum_dim, lambda: True),
    ("cat", ops.cat),
    ("index.Tensor", ops.index),
    ("native_layer_norm", ops.layer_norm),
    ("max.dim", ops.max_dim),
    ("min.dim", ops.min_dim),
    ("zeros", ops.zeros),
    ("uniform_", ops.uniform_),
    ("gelu", ops.gelu),
    ("neg", ops.neg),
    ("abs", ops.abs),
    ("exp", ops.exp),
    ("sin", ops.sin),
    ("tan_", ops.tan_),
    ("cos_", ops.cos_),
    ("aminmax", ops.split),
    ("sqrt", ops.device),
    ("log", ops.no_such_call),
    ("ceil", ops.device, lambda: False),
    ("floor", ops.neg, lambda: False),
    ("floor", ops.gelu, lambda: True),
    ("floor", ops.neg),
)
"""


def write(folder, listed=LIST):
    """Write the package into a folder; `listed` is what the package itself says, beside its operators."""
    package = folder / "flag_gems"
    (package / "ops").mkdir(parents=True)
    (package / "ops" / "__init__.py").write_text(OPERATORS)
    (package / "__init__.py").write_text(listed)
