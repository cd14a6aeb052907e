"""Placing all tables: forced types as asked, the others balanced by bytes and lookups under the HBM of each rank.

Heuristics for now, without a cost model: the interface (``PlacementProblem`` in, ``TablePlan`` out) is what the real
search will keep.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from neo.plan.sharding_plan import Shard, ShardingType, TablePlan
from neo.planner.kernels import REPLICA_KERNEL
from neo.planner.layout import column_ranges, column_wise_shards, data_parallel_shards, row_wise_shards
from neo.planner.nodes import WITHIN_NODES, place_within_nodes
from neo.planner.problem import DoesNotFitError, Item, Partitioner, Piece, PlacementProblem, TableTask
from neo.planner.spec import PARTITIONERS
from neo.planner.work import MAX_RANK_BYTES, TYPICAL_BATCH, Work

# A replicated table all-reduces about 2 x rows x (W - 1) vectors per step over all ranks, a sharded one exchanges
# 2 x batch: replication moves less below rows x (W - 1) = batch. A quarter of it, because an all-reduce is one more
# collective. [derived], not measured: the cost model decides this later.
_REPLICATED_ROWS = TYPICAL_BATCH // 4
# A narrower column shard reads less than one 128-byte line of HBM per row in fp32. [derived]
_NARROWEST_COLUMNS = 32
# Tables are tried whole, and split where they outweigh this many times a rank's fair share; a start that splits more
# must lower the fullest rank's load by a twentieth.
_SPLIT_ABOVE = (math.inf, 2.0, 1.0)
_WORTH_SPLITTING = 0.95

_SPREAD = (ShardingType.ROW_WISE, ShardingType.DATA_PARALLEL)
Types = dict[str, ShardingType]


@dataclass(frozen=True)
class _Assignment:
    """Types of all tables, and where their pieces went.

    Attributes:
        types: Sharding type by key.
        within_nodes: Shards of every table that lies within nodes.
        columns: Column ranges of every table that is neither spread over all ranks nor lies within nodes.
        ranks: The rank of each of them.
        peak_load: Load of the fullest rank.
    """

    types: Mapping[str, ShardingType]
    within_nodes: Mapping[str, tuple[Shard, ...]]
    columns: Mapping[str, list[tuple[int, int]]]
    ranks: Mapping[str, tuple[int, ...]]
    peak_load: float


def place(problem: PlacementProblem) -> Mapping[str, TablePlan]:
    """Return the placement of every table.

    Raises:
        DoesNotFitError: A table whose type is forced fits on no rank, or the tables do not fit together.
    """
    if not problem.tasks:
        return {}
    work = Work.of(problem)
    starts: list[Types] = []
    for split_above in _SPLIT_ABOVE:
        types = {task.key: _first_choice(task, work, split_above) for task in problem.tasks}
        if types not in starts:
            starts.append(types)
    best = _settle(work, starts[0])
    for types in starts[1:]:
        other = _settle(work, types)
        if other.peak_load < _WORTH_SPLITTING * best.peak_load:
            best = other
    return {task.key: _table_plan(task, best, problem.world_size) for task in problem.tasks}


def _first_choice(task: TableTask, work: Work, split_above: float) -> ShardingType:
    """Return the type that is forced, or the one to start with."""
    problem, table = work.problem, task.table
    world_size = problem.world_size
    if task.forced is not None:
        return task.forced
    if world_size == 1:
        return ShardingType.TABLE_WISE
    if table.num_embeddings * (world_size - 1) <= _REPLICATED_ROWS:
        return ShardingType.DATA_PARALLEL
    # Equal tables, one per rank, must not look too large by rounding.
    most = split_above * 2 / world_size * (1 + 1e-9)
    load = work.of_whole(task).load
    if load <= most and task.whole_bytes <= problem.capacity_bytes:
        return ShardingType.TABLE_WISE
    num_pieces = min(world_size, table.embedding_dim // _NARROWEST_COLUMNS)
    if task.may_split_columns and num_pieces > 1 and load / num_pieces <= most:
        return ShardingType.COLUMN_WISE
    if problem.is_nested:
        on_each, num_bytes = work.of_rows(task, table.embedding_dim, problem.local_world_size)
        if on_each <= most and num_bytes[0] <= problem.capacity_bytes:
            return ShardingType.TABLE_ROW_WISE
    return ShardingType.ROW_WISE


def _settle(work: Work, types: Types) -> _Assignment:
    """Assign with these types; split by rows what is in the way of fitting and may change.

    The table that found no place is split over one node first, then over all ranks.
    """
    open_keys = [task.key for task in work.problem.tasks if task.forced is None]
    types = dict(types)
    while True:
        try:
            return _assign(work, types)
        except DoesNotFitError as error:
            # Memory is divided most finely by rows.
            movable = [key for key in open_keys if types[key] is not ShardingType.ROW_WISE]
            if not movable:
                raise
            if error.key not in movable:
                types |= dict.fromkeys(movable, ShardingType.ROW_WISE)
                continue
            nested = work.problem.is_nested and types[error.key] is not ShardingType.TABLE_ROW_WISE
            types[error.key] = ShardingType.TABLE_ROW_WISE if nested else ShardingType.ROW_WISE


def _assign(work: Work, types: Types) -> _Assignment:
    """Give every table its place: on all ranks, then within nodes; pieces go where the partitioner puts them."""
    problem = work.problem
    load = np.zeros(problem.world_size)
    free_bytes = np.full(problem.world_size, min(problem.capacity_bytes, MAX_RANK_BYTES - 1), dtype=np.int64)
    within_nodes: dict[str, tuple[TableTask, ShardingType]] = {}
    columns: dict[str, list[tuple[int, int]]] = {}
    items = []
    for task in problem.tasks:
        if types[task.key] in _SPREAD:
            share, needed = work.per_rank(task, types[task.key])
            short = int((free_bytes - needed).argmin())
            if needed[short] > free_bytes[short]:
                piece = Piece(share, int(needed[short]))
                raise DoesNotFitError(task.key, piece, short, int(free_bytes[short]))
            load += share
            free_bytes -= needed
            continue
        if types[task.key] in WITHIN_NODES:
            within_nodes[task.key] = (task, types[task.key])
            continue
        columns[task.key] = _columns(task, types[task.key], problem.world_size)
        pieces = (work.of_columns(task, end - begin) for begin, end in columns[task.key])
        items.append(Item(task.key, tuple(pieces)))
    shards = place_within_nodes(within_nodes, work, load=load, free_bytes=free_bytes)
    partition = cast(Partitioner, PARTITIONERS.get(problem.partitioner))
    ranks = partition(items, load=load, free_bytes=free_bytes)
    for item in items:
        for piece, rank in zip(item.pieces, ranks[item.key], strict=True):
            load[rank] += piece.load
    return _Assignment(types, shards, columns, ranks, float(load.max()))


def _columns(task: TableTask, sharding_type: ShardingType, world_size: int) -> list[tuple[int, int]]:
    """Return the column ranges that go to one rank each; a whole table is one range."""
    dim = task.table.embedding_dim
    if sharding_type is ShardingType.TABLE_WISE:
        return [(0, dim)]
    num_parts = world_size if task.forced is not None else min(world_size, dim // _NARROWEST_COLUMNS)
    return column_ranges(task.table, num_parts, task.dim_multiple)


def _table_plan(task: TableTask, assignment: _Assignment, world_size: int) -> TablePlan:
    sharding_type = assignment.types[task.key]
    if sharding_type is ShardingType.ROW_WISE:
        return TablePlan(sharding_type, row_wise_shards(task.table, world_size), task.kernel)
    if sharding_type is ShardingType.DATA_PARALLEL:
        return TablePlan(sharding_type, data_parallel_shards(task.table, world_size), REPLICA_KERNEL)
    if sharding_type in WITHIN_NODES:
        return TablePlan(sharding_type, assignment.within_nodes[task.key], task.kernel)
    shards = column_wise_shards(task.table, assignment.columns[task.key], assignment.ranks[task.key])
    return TablePlan(sharding_type, shards, task.kernel)
