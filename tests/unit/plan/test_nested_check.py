"""R27 for nested types: what tiles a table within nodes, and every way of not doing so, named."""

# ruff: noqa: E501  One finding and its whole text per line.
import pytest

from neo.plan.check import check_plan
from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType, TablePlan
from unit.plan.builders import table

T = table("t", rows=10, dim=8)
ROWS, COLUMNS, GRID = ShardingType.TABLE_ROW_WISE, ShardingType.TABLE_COLUMN_WISE, ShardingType.GRID
Corners = tuple[int, int, int, int, int]


def findings(sharding_type: ShardingType, *shards: Corners, world_size: int = 4, per_node: int = 2) -> list[str]:
    plan = ShardingPlan(world_size, per_node, {"t": TablePlan(sharding_type, tuple(Shard(*s) for s in shards))})
    return [str(finding).removeprefix("tables.t.") for finding in check_plan(plan, {"t": T}, world_size, per_node)]


@pytest.mark.parametrize(
    ("kind", "shards"),
    [
        (ROWS, [(2, 0, 5, 0, 8), (3, 5, 10, 0, 8)]),
        (ROWS, [(3, 0, 4, 0, 8), (2, 4, 10, 0, 8)]),  # Any order of ranks.
        (ROWS, [(2, 0, 10, 0, 8), (3, 10, 10, 0, 8)]),  # An empty shard.
        (ROWS, [(1, 0, 10, 0, 8)]),  # Any k of a node's ranks.
        (COLUMNS, [(3, 0, 10, 0, 4), (2, 0, 10, 4, 8)]),
        (COLUMNS, [(2, 0, 10, 0, 8)]),
        (GRID, [(0, 0, 5, 0, 4), (2, 0, 3, 4, 8), (1, 5, 10, 0, 4), (3, 3, 10, 4, 8)]),  # Other row cuts.
        (GRID, [(0, 0, 10, 0, 4), (1, 0, 10, 4, 8)]),  # Two ranges on one node.
        (GRID, [(0, 0, 10, 0, 8), (1, 10, 10, 0, 8)]),
    ],
)
def test_whole_plans_have_no_findings(kind: ShardingType, shards: list[Corners]) -> None:
    assert findings(kind, *shards) == []


def test_a_smaller_last_node_has_fewer_row_shards() -> None:
    assert findings(GRID, (0, 0, 5, 0, 4), (1, 5, 10, 0, 4), (2, 0, 10, 4, 8), world_size=3) == []


def test_row_wise_may_take_any_ranks_of_several_nodes() -> None:
    assert findings(ShardingType.ROW_WISE, (3, 0, 4, 0, 8), (0, 4, 10, 0, 8)) == []


@pytest.mark.parametrize(("kind", "wider"), [(ROWS, "row_wise"), (COLUMNS, "column_wise")])
def test_r27_shards_on_two_nodes_are_named_with_rank_and_node(kind: ShardingType, wider: str) -> None:
    cut = [(2, 0, 5, 0, 8), (1, 5, 10, 0, 8)] if kind is ROWS else [(2, 0, 10, 0, 4), (1, 0, 10, 4, 8)]
    other = "rows [5, 10), columns [0, 8)" if kind is ROWS else "rows [0, 10), columns [4, 8)"
    assert findings(kind, *cut) == [
        f"shards: the shard of rank 1, {other}, is on node 0, but a {kind} table begins on node 1 (rank 2); "
        f"use ranks 2 to 3, or {wider}"
    ]


def test_r27_a_last_node_of_one_rank_is_told_as_such() -> None:
    assert findings(ROWS, (2, 0, 5, 0, 8), (1, 5, 10, 0, 8), world_size=3) == [
        "shards: the shard of rank 1, rows [5, 10), columns [0, 8), is on node 0, but a table_row_wise table begins on node 1 (rank 2); "
        "use rank 2, or row_wise"
    ]


def test_r27_rows_of_one_column_range_stay_on_one_node() -> None:
    shards = [(0, 0, 5, 0, 4), (2, 0, 5, 4, 8), (3, 5, 10, 0, 4), (1, 5, 10, 4, 8)]
    assert findings(GRID, *shards) == [
        "shards: the shard of rank 3, rows [5, 10), columns [0, 4), is on node 1, but what a grid table has of columns [0, 4) begins on node 0 (rank 0); "
        "use ranks 0 to 1, or cut the columns there",
        "shards: the shard of rank 1, rows [5, 10), columns [4, 8), is on node 0, but what a grid table has of columns [4, 8) begins on node 1 (rank 2); "
        "use ranks 2 to 3, or cut the columns there",
    ]


def test_r27_gaps_and_overlaps_of_a_grid_are_named() -> None:
    assert findings(GRID, (0, 0, 10, 0, 4), (2, 0, 10, 5, 8)) == [
        "shards: columns [4, 5) are in no shard; add a shard with columns: [4, 5], or let a neighbour reach over them"
    ]
    assert findings(GRID, (0, 0, 10, 0, 5), (2, 0, 10, 4, 8)) == [
        "shards: columns [4, 5) are in more than one shard; let one of the shards end where the other begins"
    ]
    assert findings(GRID, (0, 0, 4, 0, 4), (1, 5, 10, 0, 4), (2, 0, 6, 4, 8), (3, 4, 9, 4, 8)) == [
        "shards: rows [4, 5) of columns [0, 4) are in no shard; add a shard with rows: [4, 5], or let a neighbour reach over them",
        "shards: rows [4, 6) of columns [4, 8) are in more than one shard; let one of the shards end where the other begins",
        "shards: rows [9, 10) of columns [4, 8) are in no shard; add a shard with rows: [9, 10], or let a neighbour reach over them",
    ]
    assert findings(GRID, (0, 0, 10, 0, 8), (1, 0, 10, 8, 8))[0] == (
        "shards: the shard of rank 1, rows [0, 10), columns [8, 8), has no columns; leave it out"
    )


def test_r27_gaps_and_overlaps_within_a_node_are_named() -> None:
    assert findings(ROWS, (0, 0, 4, 0, 8), (1, 5, 10, 0, 8)) == [
        "shards: rows [4, 5) are in no shard; add a shard with rows: [4, 5], or let a neighbour reach over them"
    ]
    assert findings(COLUMNS, (0, 0, 10, 0, 5), (1, 0, 10, 4, 8)) == [
        "shards: columns [4, 5) are in more than one shard; let one of the shards end where the other begins"
    ]
    assert findings(ROWS, (0, 0, 10, 0, 4))[0] == (
        "shards: the shard of rank 0, rows [0, 10), columns [0, 4), must have all columns of the table, for this sharding type; write columns: [0, 8], or another sharding_type"
    )
    assert findings(COLUMNS, (0, 0, 9, 0, 8))[0] == (
        "shards: the shard of rank 0, rows [0, 9), columns [0, 8), must have all rows of the table, for this sharding type; write rows: [0, 10], or another sharding_type"
    )


@pytest.mark.parametrize(
    ("kind", "shards"),
    [
        (GRID, [(0, 0, 5, 0, 4), (0, 5, 10, 0, 4), (2, 0, 10, 4, 6), (2, 0, 10, 6, 8)]),
        (ROWS, [(1, 0, 5, 0, 8), (1, 5, 10, 0, 8)]),
        (COLUMNS, [(3, 0, 10, 0, 2), (3, 0, 10, 2, 8)]),
    ],
)
def test_a_rank_may_hold_shards_that_touch(kind: ShardingType, shards: list[Corners]) -> None:
    assert findings(kind, *shards) == []
