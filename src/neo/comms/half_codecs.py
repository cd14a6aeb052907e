"""Codecs of two bytes per value: fp16 with a loss scale, and bf16.

Shapes: R rows (samples), D the sum of the widths of their vectors.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from neo.comms.codecs import Codec, ErrorBound

_FP16_LARGEST = 65504.0


class Fp16Codec(Codec):
    """IEEE half precision: 11 significant bits, a range of 6e-8 to 65504.

    A finite value beyond the range saturates and never becomes infinite. NaN and an infinite value, which only a run
    that has diverged holds, both arrive as NaN, so that saturation cannot hide them.
    """

    dtype = torch.float16
    bound = ErrorBound(relative=2.0**-11, absolute=2.0**-25, largest=_FP16_LARGEST)

    def wire_columns(self, widths: Sequence[int]) -> int:
        """Return the sum of the widths."""
        return sum(widths)

    def encode(self, rows: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        """Return ``rows * scale`` as float16 ``[R, D]``; absolute values above ``65504 / scale`` saturate."""
        largest = _FP16_LARGEST / scale
        # The term with factor 0 changes no finite value and turns infinite ones, which the clamp would hide, into NaN.
        limited = rows.clamp(-largest, largest).add_(rows, alpha=0.0)
        return (limited if scale == 1.0 else limited.mul_(scale)).to(torch.float16)

    def decode(self, wire: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        """Return the float32 rows ``[R, D]``."""
        rows = wire.to(torch.float32)
        return rows if scale == 1.0 else rows.div_(scale)


class Bf16Codec(Codec):
    """bfloat16: 8 significant bits and the range of float32, so that it needs no loss scale and ignores it.

    NaN stays NaN and infinity infinity. The bound holds up to 3.3895e38; between that and float32's own largest value,
    3.4028e38, values become infinite.
    """

    dtype = torch.bfloat16
    bound = ErrorBound(relative=2.0**-8, absolute=2.0**-126, largest=float("inf"))

    def wire_columns(self, widths: Sequence[int]) -> int:
        """Return the sum of the widths."""
        return sum(widths)

    def encode(self, rows: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        """Return ``rows`` as bfloat16 ``[R, D]``."""
        return rows.to(torch.bfloat16)

    def decode(self, wire: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        """Return the float32 rows ``[R, D]``."""
        return wire.to(torch.float32)
