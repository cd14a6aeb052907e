"""Stochastic rounding of 16-bit weights: unbiased, and the same under every plan.

The random bits of one weight are a hash of (seed, table, row, column, step), rows and columns counted in the whole
table, so that they depend neither on the shard that holds the weight nor on the order in which rows are updated.
There is no generator, and so no state to save.

Shapes: U rows, D columns.
"""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

# Source: constants and shifts of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014),
# as signed 64-bit numbers.
_GOLDEN = -7046029254386353131
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685

# What float32 has more than each of them.
_DROPPED_BITS = {torch.float16: 13, torch.bfloat16: 16}
_FLOAT16_SMALLEST_NORMAL = 2.0**-14
_TO_SMALLEST_NORMAL = 2.0**-112
"""Takes the smallest normal number of float16 to that of float32, 2^-126."""
_SMALLEST_DOUBLE = 5e-324


@dataclass(frozen=True)
class RandomBits:
    """The random bits of a block of weights, as the hashes of its rows and of its columns.

    Attributes:
        rows: ``[U]`` int32.
        columns: ``[D]`` int32.
    """

    rows: Tensor
    columns: Tensor

    def __getitem__(self, rows: slice) -> "RandomBits":
        """Return the bits of some of the rows."""
        return RandomBits(self.rows[rows], self.columns)

    def draw(self, num_bits: int) -> Tensor:
        """Return ``[U, D]`` int32, each uniform in ``[0, 2^num_bits)``."""
        # The high bits of the product of two hashes: each of them depends on every lower bit of both.
        product = self.rows.unsqueeze(1) * self.columns
        return product.bitwise_right_shift_(32 - num_bits).bitwise_and_((1 << num_bits) - 1)


def table_salt(seed: int, key: str) -> int:
    """Return the 64-bit hash of a table under a seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{key}".encode()).digest()[:8], "little", signed=True)


def row_hashes(salts: Tensor, rows: Tensor, step: int) -> Tensor:
    """Return the hash ``[U]`` int32 of each row in one step.

    Args:
        salts: ``[U]`` int64, each row's ``table_salt``.
        rows: ``[U]`` int64 rows in the whole table.
        step: The optimizer step.
    """
    return _high_half(_mixed(_mixed(salts + _wrapped(step * _MIX_1)) + rows * _GOLDEN))


def column_hashes(first: int, count: int, device: torch.device) -> Tensor:
    """Return the hash ``[count]`` int32 of each column from ``first`` of the whole table on; all odd."""
    columns = torch.arange(first + 1, first + 1 + count, dtype=torch.int64, device=device)
    return _high_half(_mixed(columns * _GOLDEN)).bitwise_or_(1)


def round_at_random(values: Tensor, bits: RandomBits, dtype: torch.dtype) -> Tensor:
    """Return ``values`` ``[U, D]`` float32 rounded to one of their two neighbours in ``dtype``, keeping their mean.

    What ``dtype`` can represent stays as it is. Beyond its largest number there is no second neighbour: there, and for
    infinities and NaN, the result is that of rounding to the nearest (so that a run that diverges shows it).

    Args:
        values: What is rounded.
        bits: The random bits of these weights.
        dtype: ``float16`` or ``bfloat16``.
    """
    random = bits.draw(_DROPPED_BITS[dtype])
    rounded = _to_float16(values, random) if dtype is torch.float16 else _to_bfloat16(values, random)
    limit = torch.finfo(dtype).max
    # The sum of all squares bounds every single one, and is the cheapest of the reductions. NaN is in no bound.
    flat = values.flatten()
    if float(torch.dot(flat, flat)) <= min(limit, 1e18) ** 2:
        return rounded
    return torch.where(values.abs() <= limit, rounded, values.to(dtype))


def _to_bfloat16(values: Tensor, random: Tensor) -> Tensor:
    # Of sign and magnitude, the addition to the dropped bits moves the magnitude; its carry is the rounding up.
    raised = random.add_(values.view(torch.int32))
    return raised.bitwise_right_shift_(_DROPPED_BITS[torch.bfloat16]).to(torch.int16).view(torch.bfloat16)


def _to_float16(values: Tensor, random: Tensor) -> Tensor:
    # Below its smallest normal number float16 has a fixed spacing. Two ways bring the dropped bits of such values to
    # the same place as those of all others, and give the same bits.
    dropped = (1 << _DROPPED_BITS[torch.float16]) - 1
    if not _flushes_subnormals() and not _has_many_small(values):
        # Scaled until float32 has its own fixed spacing there. Fewer passes, but a CPU is slow at such numbers.
        scaled = values.mul(_TO_SMALLEST_NORMAL)
        scaled.view(torch.int32).add_(random).bitwise_and_(~dropped)
        return scaled.mul_(1 / _TO_SMALLEST_NORMAL).to(torch.float16)
    # Moved away from 0 by the smallest normal number, and back.
    side = (values - functional.hardshrink(values, _FLOAT16_SMALLEST_NORMAL)).sign_()  # 0 for all others
    moved = values.add(side, alpha=_FLOAT16_SMALLEST_NORMAL)
    moved.view(torch.int32).add_(random).bitwise_and_(~dropped)
    return moved.sub_(side, alpha=_FLOAT16_SMALLEST_NORMAL).copysign_(values).to(torch.float16)


def _flushes_subnormals() -> bool:
    """Return whether this thread takes subnormal numbers for 0 (``torch.set_flush_denormal``), Python's own too."""
    return _SMALLEST_DOUBLE * 1.0 == 0.0


def _has_many_small(values: Tensor) -> bool:
    """Return whether more than 1/16 of a sample is below float16's normal numbers; on a GPU they cost nothing."""
    if values.device.type != "cpu":
        return False
    sample = values.flatten()[::61]
    return 16 * int((sample.abs() < _FLOAT16_SMALLEST_NORMAL).sum()) > sample.numel()


def _mixed(values: Tensor) -> Tensor:
    values = (values ^ _shifted(values, 30)) * _MIX_1
    values = (values ^ _shifted(values, 27)) * _MIX_2
    return values ^ _shifted(values, 31)


def _shifted(values: Tensor, places: int) -> Tensor:
    """Return a logical shift to the right of int64."""
    return (values >> places) & ((1 << (64 - places)) - 1)


def _wrapped(number: int) -> int:
    """Return a number as signed 64-bit arithmetic has it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _high_half(values: Tensor) -> Tensor:
    return (values >> 32).to(torch.int32)
