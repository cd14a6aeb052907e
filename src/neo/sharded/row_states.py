"""Row-wise optimizers on tables split by columns: the squares of a row are summed over its column shards.

Every column shard of a row receives the same ids, so it knows which rows the others touched without being told: only
the sums of squares travel, 4 bytes per touched row and further shard.

Shapes: U touched rows of a shard.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neo.comms.collectives import Collectives
from neo.sharded.layout import Layout, LocalShard


@dataclass(frozen=True)
class _Overlap:
    """Rows that one shard of this rank has in common with another column shard of its table."""

    own: int  # index among this rank's sharing shards
    row_begin: int
    row_end: int
    column_begin: int  # of the sender


class RowStates:
    """The exchange of squares for one collection on one rank; every rank takes part in it.

    Args:
        layout: Where all column shards are.
        collectives: This rank's group.
    """

    def __init__(self, layout: Layout, collectives: Collectives) -> None:
        self._comms = collectives
        sharing = [_sharing(layout, rank) for rank in range(collectives.world_size)]
        own = sharing[collectives.rank]
        self._own = own
        self._dims = [layout.tables[local.table].embedding_dim for local in own]
        by_table: dict[int, list[int]] = {}
        for index, local in enumerate(own):
            by_table.setdefault(local.table, []).append(index)
        # For each pair of ranks both sides list the pairs of shards in the sender's order, then the receiver's.
        self._sends: list[list[_Overlap]] = []
        self._receives: list[list[_Overlap]] = []
        for peer in sharing:
            common = [(index, other) for other in peer for index in by_table.get(other.table, ())]
            receives = [_overlap(index, own[index], other, sender=other) for index, other in common]
            ordered = [(index, other) for index in range(len(own)) for other in peer if other.table == own[index].table]
            sends = [_overlap(index, own[index], other, sender=own[index]) for index, other in ordered]
            self._receives.append([overlap for overlap in receives if overlap is not None])
            self._sends.append([overlap for overlap in sends if overlap is not None])

    def mean_squares(self, rows: Sequence[Tensor], squares: Sequence[Tensor]) -> list[Tensor]:
        """Return for each sharing shard ``[U]`` the mean of squares over the columns of the whole table.

        Args:
            rows: Per sharing shard ``[U]`` its touched rows, ascending, counted in the shard.
            squares: Per sharing shard ``[U]`` the sum of squares over its own columns.
        """
        sends = [[self._cut(overlap, rows) for overlap in to_peer] for to_peer in self._sends]
        receives = [[self._cut(overlap, rows) for overlap in from_peer] for from_peer in self._receives]
        parts = [
            squares[overlap.own][cut]
            for to_peer, cuts in zip(self._sends, sends, strict=True)
            for overlap, cut in zip(to_peer, cuts, strict=True)
        ]
        device = squares[0].device if squares else torch.device("cpu")
        message = torch.cat(parts) if parts else torch.empty(0, device=device)
        receive_splits = [sum(cut.stop - cut.start for cut in cuts) for cuts in receives]
        received = message.new_empty(sum(receive_splits))
        send_splits = [sum(cut.stop - cut.start for cut in cuts) for cuts in sends]
        self._comms.all_to_all(received, message, receive_splits, send_splits).wait()
        found = [
            [(local.shard.column_begin, slice(0, len(own)), own)] for local, own in zip(self._own, squares, strict=True)
        ]
        cuts = [
            (overlap, cut)
            for o, c in zip(self._receives, receives, strict=True)
            for overlap, cut in zip(o, c, strict=True)
        ]
        sizes = [cut.stop - cut.start for _, cut in cuts]
        for (overlap, cut), part in zip(cuts, received.split(sizes), strict=True):
            found[overlap.own].append((overlap.column_begin, cut, part))
        return [_sum(parts) / dim for parts, dim in zip(found, self._dims, strict=True)]

    def _cut(self, overlap: _Overlap, rows: Sequence[Tensor]) -> slice:
        """Return which of a shard's touched rows lie in the overlap."""
        touched, first = rows[overlap.own], self._own[overlap.own].shard.row_begin
        bounds = touched.new_tensor([overlap.row_begin - first, overlap.row_end - first])
        begin, end = torch.searchsorted(touched, bounds).tolist()
        return slice(begin, end)


def _sharing(layout: Layout, rank: int) -> list[LocalShard]:
    return [local for group in layout.groups[rank] if group.shares_row_state for local in group.local_shards]


def _overlap(index: int, own: LocalShard, other: LocalShard, *, sender: LocalShard) -> _Overlap | None:
    """Return the rows that a shard has in common with another column shard, if any."""
    begin = max(own.shard.row_begin, other.shard.row_begin)
    end = min(own.shard.row_end, other.shard.row_end)
    if begin >= end or own.shard.column_begin == other.shard.column_begin:
        return None
    return _Overlap(index, begin, end, sender.shard.column_begin)


def _sum(parts: list[tuple[int, slice, Tensor]]) -> Tensor:
    """Add the parts in column order, so that every column shard gets the same bits."""
    total = torch.zeros(max(cut.stop for _, cut, _ in parts), device=parts[0][2].device)
    for _, cut, part in sorted(parts, key=lambda entry: entry[0]):
        total[cut] += part
    return total
