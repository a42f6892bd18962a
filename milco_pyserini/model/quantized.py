"""Matrices of a checkpoint as they are stored: integers with scales, dequantized where they are used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class QuantizedMatrix:
    """A matrix [R, C] of int8, or of two 4-bit values a byte, with scales. In a mapping of weights it is like a Tensor.

    Args:
        values: int8 [R, C], or uint8 [R, C / 2], the first of two values in the low half, plus 8.
        scale: float [R, G], of G blocks of equal size in each row.
    """

    values: Tensor
    scale: Tensor

    ndim = 2

    @classmethod
    def of(cls, values: Tensor, scale: Tensor) -> Self | None:
        """Return the matrix, None if the scale is not that of its rows, float [R], or of blocks of each row."""
        matrix = cls(values, scale.unsqueeze(-1) if scale.ndim == 1 else scale)
        is_matrix = values.ndim == matrix.scale.ndim == 2 and len(values) == len(scale) and matrix.scale.shape[1] > 0
        return matrix if is_matrix and not matrix.shape[1] % matrix.scale.shape[1] else None

    @property
    def is_packed(self) -> bool:
        """True if a byte has two values."""
        return self.values.dtype == torch.uint8

    @property
    def device(self) -> torch.device:
        """The device of its values."""
        return self.values.device

    @property
    def shape(self) -> torch.Size:
        """Its shape, (R, C)."""
        return torch.Size((len(self), self.values.shape[1] * (2 if self.is_packed else 1)))

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        """Return rows, a slice or int64 [n]: float32 [n, C]."""
        return type(self)(self.values[rows], self.scale[rows]).float()

    def float(self) -> Tensor:
        """Return all values: float32 [R, C]."""
        values = self.scale.new_empty(self.shape, dtype=torch.float32)
        if self.is_packed:
            pairs = values.unflatten(1, (-1, 2))
            pairs[..., 0] = self.values & 15
            pairs[..., 1] = self.values >> 4
            values -= 8
        else:
            values.copy_(self.values)
        blocks = values.unflatten(1, (self.scale.shape[1], -1))
        blocks *= self.scale.float().unsqueeze(-1)
        return values

    def limits(self) -> Tensor:
        """Return an upper bound of the absolute values of each block: float32 [R, G]."""
        return self.scale.float() * (8 if self.is_packed else 128)

    def clone(self) -> Self:
        """Return a copy, of the stored values."""
        return type(self)(self.values.clone(), self.scale.clone())


# The weights of a network by name, floats of any dtype or quantized.
Weight: TypeAlias = Tensor | QuantizedMatrix
Weights: TypeAlias = Mapping[str, Weight]
