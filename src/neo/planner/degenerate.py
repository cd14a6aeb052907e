"""Forced types that come to a simpler one on this machine: nothing is wrong with the plan, but it is told."""

from collections.abc import Mapping

from neo.hardware.topology import node_of, ranks_of_node
from neo.plan.sharding_plan import SPLIT_BY_COLUMNS, ShardingPlan, ShardingType, TablePlan
from neo.plan.table_names import several_named

_ONE_NODE = (ShardingType.TABLE_ROW_WISE, ShardingType.TABLE_COLUMN_WISE)


def degenerate_types(plan: ShardingPlan, forced: Mapping[str, ShardingType | None]) -> tuple[str, ...]:
    """Return a note for each forced type that cuts less than its name says, as on one node or one rank per node.

    Args:
        plan: The plan that was made.
        forced: The type that was asked for, by plan key; None was open.
    """
    alike: dict[str, list[str]] = {}
    for key, wanted in forced.items():
        placed = plan.tables[key]
        if wanted is not None and (simpler := _comes_to(placed, plan)) is not wanted:
            alike.setdefault(f"{wanted} comes to {simpler} {_where(placed, plan)}", []).append(key)
    return tuple(f"{several_named(keys)}: {note}" for note, keys in alike.items())


def _comes_to(placed: TablePlan, plan: ShardingPlan) -> ShardingType:
    """Return the simplest type with these shards, for types that cut columns or lie within nodes."""
    kind = placed.sharding_type
    if kind not in (*SPLIT_BY_COLUMNS, *_ONE_NODE):
        return kind
    num_ranges = len({(shard.column_begin, shard.column_end) for shard in placed.shards})
    cuts_rows = len(placed.shards) > num_ranges
    if num_ranges == 1 and not cuts_rows:
        return ShardingType.TABLE_WISE
    if kind is not ShardingType.GRID:
        return kind
    if not cuts_rows:
        return ShardingType.COLUMN_WISE
    if num_ranges > 1:
        return kind
    return ShardingType.ROW_WISE if plan.world_size <= plan.local_world_size else ShardingType.TABLE_ROW_WISE


def _where(placed: TablePlan, plan: ShardingPlan) -> str:
    kind = placed.sharding_type
    if plan.world_size == 1:
        return "on one rank"
    home = node_of(placed.shards[0].rank, plan.local_world_size)
    alone = len(ranks_of_node(home, plan.world_size, plan.local_world_size)) == 1
    if alone and kind in _ONE_NODE:
        return "on a node of one rank"
    if plan.local_world_size == 1 and kind is ShardingType.GRID and len(placed.shards) > 1:
        return "on nodes of one rank"
    if plan.world_size <= plan.local_world_size and kind is ShardingType.GRID:
        return "on one node"
    return "where the columns are too few to be cut"
