"""Placing tables that lie within nodes: each part goes to the least loaded node that has room for it.

A part is what one node holds of a table: all of a ``table_row_wise`` or ``table_column_wise`` table, one column range
of a ``grid`` table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neo.plan.sharding_plan import Shard, ShardingType
from neo.planner.layout import column_ranges, column_wise_shards, node_wise_shards
from neo.planner.problem import DoesNotFitError, Piece, PlacementProblem, TableTask
from neo.planner.work import MAX_RANK_BYTES, Work

WITHIN_NODES = (ShardingType.TABLE_ROW_WISE, ShardingType.TABLE_COLUMN_WISE, ShardingType.GRID)
Range = tuple[int, int]


@dataclass(frozen=True)
class _Demand:
    """What a part asks of a node of one size.

    Attributes:
        load: Per piece, heaviest first.
        num_bytes: Per piece.
    """

    load: NDArray[np.float64]
    num_bytes: NDArray[np.int64]


@dataclass(frozen=True)
class _Offer:
    """What the nodes of one size would become with a part.

    Attributes:
        nodes: The nodes.
        ranks: Which rank of the node takes each piece, [nodes, pieces].
        peak: Load of the fullest rank, infinite where there is no room, [nodes].
        spare: Bytes that the rank with the least room would have left, [nodes].
    """

    nodes: range
    ranks: NDArray[np.intp]
    peak: NDArray[np.float64]
    spare: NDArray[np.int64]


def place_within_nodes(
    tables: Mapping[str, tuple[TableTask, ShardingType]],
    work: Work,
    *,
    load: NDArray[np.float64],
    free_bytes: NDArray[np.int64],
) -> dict[str, tuple[Shard, ...]]:
    """Return the shards of each table; the largest are placed first, equal ones by key.

    Args:
        tables: The tables by key, each with one of ``WITHIN_NODES``.
        work: What they mean for a rank.
        load: Load that each rank carries already, [world_size]; what is placed is added.
        free_bytes: Memory that each rank has left, [world_size]; what is placed is taken off.

    Raises:
        DoesNotFitError: A part fits on no node.
    """
    nodes = _Nodes(work, load, free_bytes)
    full = work.problem.local_world_size

    def size(key: str) -> float:
        task, sharding_type = tables[key]
        columns = _columns_by_part(task, sharding_type, work.problem)
        return max(float(nodes.demand(task, sharding_type, part, full).load[0]) for part in columns)

    placed = {}
    for key in sorted(tables, key=lambda key: (-size(key), key)):
        placed[key] = nodes.place(*tables[key])
    return placed


def _columns_by_part(task: TableTask, sharding_type: ShardingType, problem: PlacementProblem) -> list[Range]:
    if sharding_type is ShardingType.GRID:
        return column_ranges(task.table, problem.num_nodes, task.dim_multiple)
    return [(0, task.table.embedding_dim)]


class _Nodes:
    """Loads and free memory of all ranks, seen node by node."""

    def __init__(self, work: Work, load: NDArray[np.float64], free_bytes: NDArray[np.int64]) -> None:
        self._work = work
        self._problem = work.problem
        self._load = load
        self._free_bytes = free_bytes

    def place(self, task: TableTask, sharding_type: ShardingType) -> tuple[Shard, ...]:
        """Give every part of a table its node, parts on different nodes while there is room."""
        columns = _columns_by_part(task, sharding_type, self._problem)
        taken: list[int] = []
        ranks: list[int] = []
        for part in columns:
            node, ranks = self._place_part(task, sharding_type, part, taken)
            taken.append(node)
        if sharding_type is ShardingType.TABLE_COLUMN_WISE:
            ranges = column_ranges(task.table, len(self._problem.ranks_of(taken[0])), task.dim_multiple)
            return column_wise_shards(task.table, ranges, ranks)
        return node_wise_shards(task.table, columns, [self._problem.ranks_of(node) for node in taken])

    def demand(self, task: TableTask, sharding_type: ShardingType, part: Range, num_ranks: int) -> _Demand:
        """Return what a part asks of a node of ``num_ranks``."""
        if sharding_type is ShardingType.TABLE_COLUMN_WISE:
            ranges = column_ranges(task.table, num_ranks, task.dim_multiple)
            pieces = [self._work.of_columns(task, end - begin) for begin, end in ranges]
            num_bytes = np.array([min(piece.num_bytes, MAX_RANK_BYTES) for piece in pieces], dtype=np.int64)
            return _Demand(np.array([piece.load for piece in pieces]), num_bytes)
        load, num_bytes = self._work.of_rows(task, part[1] - part[0], num_ranks)
        return _Demand(np.full(num_ranks, load), num_bytes)

    def _place_part(
        self, task: TableTask, sharding_type: ShardingType, part: Range, taken: Sequence[int]
    ) -> tuple[int, list[int]]:
        """Return the node of a part, and the rank of each of its pieces."""
        demands = {len(group[0]): self.demand(task, sharding_type, part, len(group[0])) for group in self._groups()}
        by_rows = sharding_type is not ShardingType.TABLE_COLUMN_WISE
        offers = [self._offer(nodes, demands[len(ranks)], by_rows) for ranks, nodes in self._groups()]
        peak = np.concatenate([offer.peak for offer in offers])
        elsewhere = peak.copy()
        elsewhere[list(taken)] = np.inf
        node = int((elsewhere if np.isfinite(elsewhere).any() else peak).argmin())
        if not np.isfinite(peak[node]):
            raise self._does_not_fit(task, offers, demands)
        offer = next(offer for offer in offers if node in offer.nodes)
        own = self._problem.ranks_of(node)
        demand = demands[len(own)]
        ranks = [own[int(place)] for place in offer.ranks[node - offer.nodes.start]]
        self._load[ranks] += demand.load
        self._free_bytes[ranks] -= demand.num_bytes
        return node, ranks

    def _groups(self) -> list[tuple[range, range]]:
        """Return the nodes of each size: the ranks of the first of them, and the nodes."""
        full = self._problem.world_size // self._problem.local_world_size
        groups = [(0, full), (full, self._problem.num_nodes)]
        return [(self._problem.ranks_of(begin), range(begin, end)) for begin, end in groups if begin < end]

    def _offer(self, nodes: range, demand: _Demand, by_rows: bool) -> _Offer:
        """Look at nodes of one size. Row shards lie in the order of ranks, column shards where there is least load."""
        ranks = range(self._problem.ranks_of(nodes[0]).start, self._problem.ranks_of(nodes[-1]).stop)
        load = self._load[ranks.start : ranks.stop].reshape(len(nodes), -1)
        free_bytes = self._free_bytes[ranks.start : ranks.stop].reshape(len(nodes), -1)
        orders = [np.broadcast_to(np.arange(load.shape[1]), load.shape)]
        if not by_rows:
            orders = [np.argsort(load, axis=1, kind="stable"), np.argsort(-free_bytes, axis=1, kind="stable")]
        num_pieces = len(demand.load)
        chosen = np.ascontiguousarray(orders[0][:, :num_pieces])
        spare = (np.take_along_axis(free_bytes, chosen, axis=1) - demand.num_bytes).min(axis=1)
        for order in orders[1:]:
            other = order[:, :num_pieces]
            other_spare = (np.take_along_axis(free_bytes, other, axis=1) - demand.num_bytes).min(axis=1)
            better = (spare < 0) & (other_spare > spare)
            chosen = np.where(better[:, None], other, chosen)
            spare = np.where(better, other_spare, spare)
        after = load.copy()
        np.put_along_axis(after, chosen, np.take_along_axis(load, chosen, axis=1) + demand.load, axis=1)
        return _Offer(nodes, chosen, np.where(spare >= 0, after.max(axis=1), np.inf), spare)

    def _does_not_fit(
        self, task: TableTask, offers: Sequence[_Offer], demands: Mapping[int, _Demand]
    ) -> DoesNotFitError:
        """Return the error that names the rank which comes nearest to holding its piece."""
        spare, node, offer = max(
            (
                (int(spare), -node, offer)
                for offer in offers
                for node, spare in zip(offer.nodes, offer.spare, strict=True)
            ),
            key=lambda best: best[:2],
        )
        own = self._problem.ranks_of(-node)
        demand = demands[len(own)]
        ranks = [own[int(place)] for place in offer.ranks[-node - offer.nodes.start]]
        left = [int(self._free_bytes[rank]) for rank in ranks]
        worst = next(i for i, free in enumerate(left) if free - int(demand.num_bytes[i]) == spare)
        piece = Piece(float(demand.load[worst]), int(demand.num_bytes[worst]))
        return DoesNotFitError(task.key, piece, ranks[worst], max(0, left[worst]))
