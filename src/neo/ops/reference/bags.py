"""Sums of weighted rows by bag, in blocks that stay in the cache.

Shapes: R rows of a matrix, D columns, N ids, B bags.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from neo.optim.sparse import read_rows

# Source: 512 KiB of float32 per temporary: the fastest of 128 KiB to 1 MiB on a core with 2 MiB of L2
# (benchmarks/ops.py, 2026-11-30).
_CPU_BLOCK_VALUES = 1 << 17


def rows_per_block(num_columns: int, device: torch.device) -> int:
    """Return how many rows are worked on at a time; on a GPU all, since there each operation costs a launch."""
    return max(1, _CPU_BLOCK_VALUES // num_columns) if device.type == "cpu" else 1 << 48


def blocks(count: int, size: int) -> Iterator[slice]:
    """Cut ``count`` things into runs of at most ``size``."""
    for begin in range(0, count, size):
        yield slice(begin, min(begin + size, count))


def sum_bags(matrix: Tensor, ids: Tensor, offsets: Tensor, factors: Tensor | None) -> Tensor:
    """Return ``[B, D]`` float32: for each bag the sum of its rows, each times its factor.

    Args:
        matrix: ``[R, D]`` float32, float16 or bfloat16.
        ids: ``[N]`` int64 rows.
        offsets: ``[B + 1]`` int64 where each bag begins among ``ids``, from 0.
        factors: ``[N]`` float32 or None.
    """
    num_bags = offsets.numel() - 1
    if not ids.numel() or not num_bags:
        return torch.zeros(num_bags, matrix.shape[1], dtype=torch.float32, device=matrix.device)
    if matrix.dtype is torch.float32:
        return _embedding_bag(matrix, ids, offsets, factors)
    # The kernel for 16-bit rows would round the sums to 16 bits too.
    size = rows_per_block(matrix.shape[1], matrix.device)
    if ids.numel() <= size:
        return _sum_in_float32(matrix, ids, offsets, factors)
    sums = torch.empty(num_bags, matrix.shape[1], dtype=torch.float32, device=matrix.device)
    targets = torch.arange(0, ids.numel(), size, device=offsets.device)
    first_bags = [0, *torch.searchsorted(offsets, targets[1:]).clamp_(max=num_bags).tolist(), num_bags]
    bounds = offsets[first_bags].tolist()
    for index in range(len(first_bags) - 1):
        begin, end = first_bags[index], first_bags[index + 1]
        if begin == end:
            continue
        part = slice(bounds[index], bounds[index + 1])
        part_factors = None if factors is None else factors[part]
        sums[begin:end] = _sum_in_float32(matrix, ids[part], offsets[begin : end + 1] - part.start, part_factors)
    return sums


def _sum_in_float32(matrix: Tensor, ids: Tensor, offsets: Tensor, factors: Tensor | None) -> Tensor:
    rows = read_rows(matrix, ids).float()
    if offsets.numel() - 1 == ids.numel() and factors is None and bool((offsets.diff() == 1).all()):
        return rows
    return _embedding_bag(rows, torch.arange(ids.numel(), device=ids.device), offsets, factors)


def _embedding_bag(matrix: Tensor, ids: Tensor, offsets: Tensor, factors: Tensor | None) -> Tensor:
    if not ids.numel():
        return torch.zeros(offsets.numel() - 1, matrix.shape[1], dtype=torch.float32, device=matrix.device)
    return functional.embedding_bag(
        ids, matrix, offsets, mode="sum", per_sample_weights=factors, include_last_offset=True
    )
