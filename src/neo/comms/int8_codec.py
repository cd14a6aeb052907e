"""A codec of one byte per value: every vector of every row has a grid of its own.

Shapes: R rows (samples), V vectors in each, D the sum of their widths; n vectors of one width w.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import torch
from torch import Tensor

from neo.comms.codecs import Codec, ErrorBound

# 256 grid points hold 254 steps: half a step at either end is room for moving the grid, so that 0 lies on it.
_STEPS = 254.0
_SMALLEST_STEP = 2.0**-126
# A step is at least this part of the largest value, so that the grid's position is a whole number float32 can hold.
_FINEST = 2.0**-20
_LARGEST = 2.0**127
_HEADER_BYTES = 8
_FLOAT_BYTES = 4

_Columns: TypeAlias = slice | Tensor


@dataclass(frozen=True)
class _Group:
    """The vectors of one width.

    Attributes:
        width: w.
        vectors: Their positions among the V vectors, as a slice where they are neighbours.
        columns: Their columns among the D columns.
    """

    width: int
    vectors: _Columns
    columns: _Columns


class Int8RowwiseCodec(Codec):
    """One byte per value, and a step and an offset in float32 per vector: a vector of width w takes w + 8 bytes.

    The grid ``(byte - offset) * step`` spans the vector's smallest and largest value. The offset is a whole number, so
    0 is written and read without error wherever it lies within a vector, and a vector of one value is exact to
    float32's rounding. The loss scale is ignored: each vector's grid follows its own range. A vector that holds NaN or
    an infinite value arrives as NaN throughout; finite values saturate at 2^127.

    On the wire a row is the steps of its V vectors, their offsets, then the D bytes.
    """

    dtype = torch.uint8
    bound = ErrorBound(relative=1.0 / _STEPS + _FINEST, absolute=_SMALLEST_STEP, largest=_LARGEST)

    def __init__(self) -> None:
        self._groups: dict[tuple[tuple[int, ...], torch.device], list[_Group]] = {}

    def wire_columns(self, widths: Sequence[int]) -> int:
        """Return the bytes of one row: one per column and eight per vector."""
        return sum(widths) + _HEADER_BYTES * len(widths)

    def encode(self, rows: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        """Return ``[R, D + 8 V]`` bytes."""
        num_vectors = len(widths)
        wire = torch.empty(len(rows), self.wire_columns(widths), dtype=torch.uint8, device=rows.device)
        header = torch.zeros(len(rows), 2, num_vectors, device=rows.device)
        codes = wire[:, _HEADER_BYTES * num_vectors :]
        for group in self._grouped(widths, rows.device):
            vectors = rows[:, group.columns].unflatten(1, (-1, group.width))
            step, offset = _grid(vectors)
            header[:, 0, group.vectors], header[:, 1, group.vectors] = step, offset
            steps = (vectors * step.reciprocal().unsqueeze(2)).add_(offset.add(0.5).unsqueeze(2)).clamp_(0.0, 255.0)
            codes[:, group.columns] = steps.flatten(1).to(torch.uint8)
        wire[:, : _HEADER_BYTES * num_vectors] = header.flatten(1).view(torch.uint8)
        return wire

    def decode(self, wire: Tensor, widths: Sequence[int], *, scale: float = 1.0) -> Tensor:
        """Return the float32 rows ``[R, D]``."""
        header_bytes = _HEADER_BYTES * len(widths)
        aligned = wire[:, :header_bytes].clone(memory_format=torch.contiguous_format).flatten()
        header = aligned.view(torch.float32).view(len(wire), 2, len(widths))
        rows = torch.empty(len(wire), sum(widths), device=wire.device)
        codes = wire[:, header_bytes:]
        for group in self._grouped(widths, wire.device):
            step, offset = header[:, 0, group.vectors], header[:, 1, group.vectors]
            vectors = codes[:, group.columns].to(torch.float32).unflatten(1, (-1, group.width))
            rows[:, group.columns] = vectors.sub_(offset.unsqueeze(2)).mul_(step.unsqueeze(2)).flatten(1)
        return rows

    def _grouped(self, widths: Sequence[int], device: torch.device) -> list[_Group]:
        """Return the vectors by width, so that there is one operation per width and not one per vector."""
        key = (tuple(widths), device)
        if key not in self._groups:
            self._groups[key] = _by_width(widths, device)
        return self._groups[key]


def _grid(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return step and offset ``[R, n]`` of vectors ``[R, n, w]``; both are NaN where a vector is not finite."""
    low, high = vectors.amin(dim=2), vectors.amax(dim=2)
    not_finite = (low - low) + (high - high)  # 0, or NaN
    low, high = low.clamp(min=-_LARGEST, max=_LARGEST), high.clamp(min=-_LARGEST, max=_LARGEST)
    step = high / _STEPS - low / _STEPS
    finest = torch.maximum(low.abs(), high.abs()) * _FINEST
    step = torch.maximum(step, finest).clamp_(min=_SMALLEST_STEP) + not_finite
    return step, (low * step.reciprocal()).neg_().round_()


def _by_width(widths: Sequence[int], device: torch.device) -> list[_Group]:
    begins = list(accumulate(widths, initial=0))
    groups = []
    for width in dict.fromkeys(width for width in widths if width > 0):
        members = [position for position, other in enumerate(widths) if other == width]
        columns = [begins[position] + column for position in members for column in range(width)]
        groups.append(_Group(width, _columns(members, device), _columns(columns, device)))
    return groups


def _columns(positions: Sequence[int], device: torch.device) -> _Columns:
    if positions[-1] - positions[0] + 1 == len(positions):
        return slice(positions[0], positions[-1] + 1)
    return torch.tensor(positions, dtype=torch.int64, device=device)
