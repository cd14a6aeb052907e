"""A codec that sends every value in float64."""

from collections.abc import Sequence

import torch
from torch import Tensor

from neo.comms.codecs import Codec, ErrorBound


class AcmeFp64(Codec):
    """Exact, at twice the bytes."""

    dtype = torch.float64
    bound = ErrorBound(relative=0.0, absolute=0.0, largest=float("inf"))

    def wire_columns(self, widths: Sequence[int]) -> int:
        """Return one element for each value."""
        return sum(widths)

    def encode(self, rows: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        """Return the rows in float64."""
        return rows.to(torch.float64)

    def decode(self, wire: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        """Return the rows in float32."""
        return wire.to(torch.float32)
