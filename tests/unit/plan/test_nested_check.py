"""R27 for nested types: what tiles a table within nodes, and every way of not doing so, named."""

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
    assert findings(kind, *cut) == [
        f"shards[1].rank: rank 1 is on node 0, but shards[0] of a {kind} table is on node 1; "
        f"use ranks 2 to 3, or {wider}"
    ]


def test_r27_a_last_node_of_one_rank_is_told_as_such() -> None:
    assert findings(ROWS, (2, 0, 5, 0, 8), (1, 5, 10, 0, 8), world_size=3) == [
        "shards[1].rank: rank 1 is on node 0, but shards[0] of a table_row_wise table is on node 1; "
        "use rank 2, or row_wise"
    ]


def test_r27_rows_of_one_column_range_stay_on_one_node() -> None:
    shards = [(0, 0, 5, 0, 4), (2, 0, 5, 4, 8), (3, 5, 10, 0, 4), (1, 5, 10, 4, 8)]
    assert findings(GRID, *shards) == [
        "shards[2].rank: rank 3 is on node 1, but shards[0] of columns [0, 4) of a grid table is on node 0; "
        "use ranks 0 to 1, or cut the columns there",
        "shards[3].rank: rank 1 is on node 0, but shards[1] of columns [4, 8) of a grid table is on node 1; "
        "use ranks 2 to 3, or cut the columns there",
    ]


def test_r27_gaps_and_overlaps_of_a_grid_are_named() -> None:
    assert findings(GRID, (0, 0, 10, 0, 4), (2, 0, 10, 5, 8)) == ["shards: columns [4, 5) are in no shard"]
    assert findings(GRID, (0, 0, 10, 0, 5), (2, 0, 10, 4, 8)) == ["shards: columns [4, 5) are in more than one shard"]
    assert findings(GRID, (0, 0, 4, 0, 4), (1, 5, 10, 0, 4), (2, 0, 6, 4, 8), (3, 4, 9, 4, 8)) == [
        "shards: rows [4, 5) of columns [0, 4) are in no shard",
        "shards: rows [4, 6) of columns [4, 8) are in more than one shard",
        "shards: rows [9, 10) of columns [4, 8) are in no shard",
    ]
    assert findings(GRID, (0, 0, 10, 0, 8), (1, 0, 10, 8, 8))[0] == (
        "shards[1].columns: a column shard without columns; leave it out"
    )
    assert findings(GRID) == ["shards: columns [0, 8) are in no shard"]


def test_r27_gaps_and_overlaps_within_a_node_are_named() -> None:
    assert findings(ROWS, (0, 0, 4, 0, 8), (1, 5, 10, 0, 8)) == ["shards: rows [4, 5) are in no shard"]
    assert findings(COLUMNS, (0, 0, 10, 0, 5), (1, 0, 10, 4, 8)) == [
        "shards: columns [4, 5) are in more than one shard"
    ]
    assert findings(ROWS, (0, 0, 10, 0, 4))[0] == (
        "shards[0].columns: [0, 4) must be all columns of the table, [0, 8), for this sharding type"
    )
    assert findings(COLUMNS, (0, 0, 9, 0, 8))[0] == (
        "shards[0].rows: [0, 9) must be all rows of the table, [0, 10), for this sharding type"
    )
    assert findings(ROWS) == ["shards: rows [0, 10) are in no shard"]
    assert findings(COLUMNS) == ["shards: columns [0, 8) are in no shard"]
