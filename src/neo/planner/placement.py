"""Placing all tables: forced types as asked, the others balanced by bytes and lookups under the HBM of each rank.

Heuristics for now, without a cost model: the interface (``PlacementProblem`` in, ``TablePlan`` out) is what the real
search will keep.
"""

from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.typing import NDArray

from neo.plan.sharding_plan import ShardingType, TablePlan
from neo.planner.layout import column_ranges, column_wise_shards, data_parallel_shards, row_wise_shards
from neo.planner.problem import DoesNotFitError, Item, Partitioner, Piece, PlacementProblem, TableTask
from neo.planner.spec import PARTITIONERS

# A replicated table all-reduces about 2 x rows x (W - 1) vectors per step over all ranks, a sharded one exchanges
# 2 x batch: replication moves less below rows x (W - 1) = batch. The default batch in training is 2048; a quarter of
# it, because an all-reduce is one more collective. [derived], not measured: the cost model decides this later.
_REPLICATED_ROWS = 2048 // 4
# A narrower column shard reads less than one 128-byte line of HBM per row in fp32. [derived]
_NARROWEST_COLUMNS = 32

_SPREAD = (ShardingType.ROW_WISE, ShardingType.DATA_PARALLEL)


def place(problem: PlacementProblem) -> Mapping[str, TablePlan]:
    """Return the placement of every table.

    Raises:
        DoesNotFitError: A table whose type is forced fits on no rank, or the tables do not fit together.
    """
    loads = relative_loads(problem)
    types = {task.key: _first_choice(task, problem, loads[task.key]) for task in problem.tasks}
    open_keys = [task.key for task in problem.tasks if task.forced is None]
    while True:
        try:
            return _lay_out(problem, types, loads)
        except DoesNotFitError as error:
            # Memory is divided most finely by rows: whatever is in the way and may change is split so.
            movable = [key for key in open_keys if types[key] is not ShardingType.ROW_WISE]
            if not movable:
                raise
            to_split = [error.key] if error.key in movable else movable
            types |= dict.fromkeys(to_split, ShardingType.ROW_WISE)


def relative_loads(problem: PlacementProblem) -> Mapping[str, float]:
    """Return each table's share of all lookups plus its share of all bytes; over all tables they sum to 2."""
    lookups = {task.key: _lookups(task) for task in problem.tasks}
    sizes = {task.key: float(_whole_bytes(task, problem)) for task in problem.tasks}
    all_lookups, all_bytes = sum(lookups.values()), sum(sizes.values())
    return {key: lookups[key] / all_lookups + sizes[key] / all_bytes for key in lookups}


def _lookups(task: TableTask) -> float:
    """Return the elements read and sent per sample: a row per id, a pooled vector per feature."""
    table = task.table
    return (table.pooling_factor + len(table.feature_names)) * table.embedding_dim


def _whole_bytes(task: TableTask, problem: PlacementProblem) -> int:
    return problem.bytes_of(task.table.num_embeddings, task.table.embedding_dim)


def _first_choice(task: TableTask, problem: PlacementProblem, load: float) -> ShardingType:
    """Return the type that is forced, or the one to start with: whole tables, unless very small or too large."""
    world_size = problem.world_size
    if task.forced is not None:
        return task.forced
    if world_size == 1:
        return ShardingType.TABLE_WISE
    if task.table.num_embeddings * (world_size - 1) <= _REPLICATED_ROWS:
        return ShardingType.DATA_PARALLEL
    fair_load = 2 / world_size * (1 + 1e-9)  # Equal tables, one per rank, must not look too large by rounding.
    whole_bytes = _whole_bytes(task, problem)
    if load <= fair_load and whole_bytes <= problem.capacity_bytes:
        return ShardingType.TABLE_WISE
    num_pieces = min(world_size, task.table.embedding_dim // _NARROWEST_COLUMNS)
    if problem.may_split_columns and num_pieces > 1 and load / num_pieces <= fair_load:
        return ShardingType.COLUMN_WISE
    return ShardingType.ROW_WISE


def _lay_out(
    problem: PlacementProblem, types: Mapping[str, ShardingType], loads: Mapping[str, float]
) -> Mapping[str, TablePlan]:
    """Lay out every table with its type; pieces go where the partitioner puts them."""
    spread_load = sum(loads[task.key] for task in problem.tasks if types[task.key] in _SPREAD)
    free_bytes = np.full(problem.world_size, problem.capacity_bytes, dtype=np.int64)
    plans: dict[str, TablePlan] = {}
    columns: dict[str, list[tuple[int, int]]] = {}
    for task in problem.tasks:
        if types[task.key] in _SPREAD:
            plans[task.key] = _spread(task, types[task.key], problem.world_size)
            _take(free_bytes, plans[task.key], task, problem)
        else:
            columns[task.key] = _columns(task, types[task.key], problem.world_size)
    pieces = [task for task in problem.tasks if task.key in columns]
    items = [
        Item(task.key, tuple(_piece(task, bounds, problem, loads[task.key]) for bounds in columns[task.key]))
        for task in pieces
    ]
    partition = cast(Partitioner, PARTITIONERS.get(problem.partitioner))
    load = np.full(problem.world_size, spread_load / problem.world_size)
    ranks = partition(items, load=load, free_bytes=free_bytes)
    for task in pieces:
        shards = column_wise_shards(task.table, columns[task.key], ranks[task.key])
        plans[task.key] = TablePlan(types[task.key], shards, task.kernel)
    return {task.key: plans[task.key] for task in problem.tasks}


def _spread(task: TableTask, sharding_type: ShardingType, world_size: int) -> TablePlan:
    spread = row_wise_shards if sharding_type is ShardingType.ROW_WISE else data_parallel_shards
    return TablePlan(sharding_type, spread(task.table, world_size), task.kernel)


def _take(free_bytes: NDArray[np.int64], table_plan: TablePlan, task: TableTask, problem: PlacementProblem) -> None:
    """Subtract a spread table from what each rank has left."""
    for shard in table_plan.shards:
        needed = problem.bytes_of(shard.num_rows, shard.num_columns)
        if needed > free_bytes[shard.rank]:
            raise DoesNotFitError(task.key, Piece(0.0, needed), shard.rank, int(free_bytes[shard.rank]))
        free_bytes[shard.rank] -= needed


def _columns(task: TableTask, sharding_type: ShardingType, world_size: int) -> list[tuple[int, int]]:
    """Return the column ranges that go to one rank each; a whole table is one range."""
    dim = task.table.embedding_dim
    if sharding_type is ShardingType.TABLE_WISE:
        return [(0, dim)]
    num_parts = world_size if task.forced is not None else min(world_size, dim // _NARROWEST_COLUMNS)
    return column_ranges(task.table, num_parts, task.dim_multiple)


def _piece(task: TableTask, columns: tuple[int, int], problem: PlacementProblem, load: float) -> Piece:
    width = columns[1] - columns[0]
    num_bytes = problem.bytes_of(task.table.num_embeddings, width)
    return Piece(load * width / task.table.embedding_dim, num_bytes)
