"""Codecs: how pooled vectors and their gradients are written on the wire.

Shapes: R rows (samples), V vectors in each row, one per feature; D the sum of their widths.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ErrorBound:
    """What one passage through a codec may change: ``|decoded - x| <= relative * max|vector| + absolute``.

    Attributes:
        relative: Part of the largest absolute value of the vector that ``x`` belongs to.
        absolute: For values near 0, before a loss scale.
        largest: Absolute values above this saturate at it; NaN stays NaN.
    """

    relative: float
    absolute: float
    largest: float


class Codec(ABC):
    """Writes rows of vectors as wire elements, and back. A row's wire form depends on that row alone.

    Attributes:
        dtype: Type of the wire elements.
        bound: What a passage may change.
    """

    dtype: torch.dtype
    bound: ErrorBound

    @abstractmethod
    def wire_columns(self, widths: Sequence[int]) -> int:
        """Return the wire elements of one row of vectors of these widths."""

    @abstractmethod
    def encode(self, rows: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        """Return the wire form ``[R, wire_columns]`` of ``rows`` ``[R, D]`` float32.

        Args:
            rows: The vectors of each row side by side; R and D may be 0.
            widths: ``[V]`` width of each vector.
            scale: The power of two that values are multiplied by before they are written (a loss scale, for formats of
                little range); codecs of full range may ignore it.
        """

    @abstractmethod
    def decode(self, wire: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        """Return the float32 rows ``[R, D]`` of a wire form ``[R, wire_columns]``; ``scale`` as in ``encode``."""


class Fp32Codec(Codec):
    """Sends the values as they are."""

    dtype = torch.float32
    bound = ErrorBound(relative=0.0, absolute=0.0, largest=float("inf"))

    def wire_columns(self, widths: Sequence[int]) -> int:
        """Return the sum of the widths."""
        return sum(widths)

    def encode(self, rows: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        """Return ``rows`` itself."""
        return rows

    def decode(self, wire: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        """Return ``wire`` itself."""
        return wire
