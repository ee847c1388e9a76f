"""Operands of every geometry, made the same way on two devices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

VIEWS = ("plain", "transposed", "stepped", "offset", "expanded", "conjugated")


@dataclass(frozen=True, kw_only=True)
class Operand:
    """A tensor by description: its shape, how it views its storage, its type, and a seed for its values."""

    shape: tuple[int, ...]
    view: str
    dtype: torch.dtype
    seed: int

    def make(self, device: str) -> torch.Tensor:
        """Return the tensor; its values depend on the description alone."""
        if self.view == "transposed":
            return self._filled(self.shape[::-1], device).permute(tuple(range(len(self.shape)))[::-1])
        if self.view == "stepped" and self.shape:
            return self._filled((*self.shape[:-1], 2 * self.shape[-1]), device)[..., ::2]
        if self.view == "offset" and self.shape:
            return self._filled((self.shape[0] + 1, *self.shape[1:]), device)[1:]
        if self.view == "expanded" and self.shape:
            return self._filled((1, *self.shape[1:]), device).expand(self.shape)
        made = self._filled(self.shape, device)
        return made.conj() if self.view == "conjugated" and self.dtype.is_complex else made

    def _filled(self, shape: tuple[int, ...], device: str) -> torch.Tensor:
        count = math.prod(shape)
        numbers = [((i + 1) * (self.seed * 2 + 7) % 13 - 5) / 2 for i in range(count)]
        return torch.tensor(numbers, dtype=torch.float64).reshape(shape).to(self.dtype).to(device)
