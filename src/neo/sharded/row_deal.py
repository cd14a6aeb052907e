"""Dealing ids out by row: the ids of tables that are split by rows, sorted by the part that holds them.

Shapes: S row splits of one bag class, P parts of all of them, B bags, N ids of all S sources.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from neo.sharded.layout import RowSplit


@dataclass(frozen=True)
class Dealt:
    """What each part gets.

    Attributes:
        lengths: ``[P, B]`` ids per bag.
        values: Per part its ids, counted from the part's first row, in the order in which they came.
        weights: Per part their weights, or None where the source has none.
    """

    lengths: Tensor
    values: tuple[Tensor, ...]
    weights: tuple[Tensor | None, ...]


class RowDeal:
    """Deals the ids of several sources at once.

    Args:
        splits: The cuts, each of one source.
    """

    def __init__(self, splits: Sequence[RowSplit]) -> None:
        # Tables are lined up one after the other, so that one search and one sort serve all of them.
        firsts = list(accumulate((split.bounds[-1] for split in splits), initial=0))
        begins = [first + b for first, split in zip(firsts, splits, strict=False) for b in split.bounds[:-1]]
        self._firsts = torch.tensor(firsts[:-1], dtype=torch.int64)
        self._begins = torch.tensor(begins, dtype=torch.int64)
        self._parts_of = [len(split.bounds) - 1 for split in splits]

    def __call__(self, values: Sequence[Tensor], lengths: Tensor, weights: Sequence[Tensor | None]) -> Dealt:
        """Deal out one batch.

        Args:
            values: Per split the ids of its source.
            lengths: ``[S, B]`` their ids per bag.
            weights: Per split the weights of the ids, or None.
        """
        if self._begins.device != lengths.device:
            self._firsts, self._begins = self._firsts.to(lengths.device), self._begins.to(lengths.device)
        counts = [part.numel() for part in values]
        total, num_bags, num_parts = sum(counts), lengths.shape[1], self._begins.numel()
        if total == 0:
            counts_per_part = [0] * num_parts
            dealt = lengths.new_zeros(num_parts, num_bags)
            order = lengths.new_empty(0)
            local = order
        else:
            splits = torch.repeat_interleave(lengths.new_tensor(counts), output_size=total)
            ids = torch.cat(list(values)) + self._firsts[splits]
            part = torch.bucketize(ids, self._begins, right=True) - 1
            bags = torch.repeat_interleave(lengths.reshape(-1), output_size=total) % num_bags
            dealt = torch.bincount(part * num_bags + bags, minlength=num_parts * num_bags).view(num_parts, num_bags)
            order = torch.argsort(part.int(), stable=True)
            local = (ids - self._begins[part])[order]
            counts_per_part = dealt.sum(dim=1).tolist()
        return Dealt(dealt, local.split(counts_per_part), self._weights(weights, counts, order, counts_per_part))

    def _weights(
        self, weights: Sequence[Tensor | None], counts: Sequence[int], order: Tensor, per_part: list[int]
    ) -> tuple[Tensor | None, ...]:
        given = next((part for part in weights if part is not None), None)
        if given is None:
            return (None,) * len(per_part)
        filled = [given.new_zeros(n) if part is None else part for part, n in zip(weights, counts, strict=True)]
        parts = torch.cat(filled)[order].split(per_part)
        has_weights = [part is not None for part, n in zip(weights, self._parts_of, strict=True) for _ in range(n)]
        return tuple(part if has else None for part, has in zip(parts, has_weights, strict=True))
