# ruff: noqa: E501  One finding and its whole text per line.
import pytest

from neo.plan.check import check_plan
from neo.plan.plan_reader import plan_from_dict
from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType, TablePlan
from unit.plan.builders import table

T = table("t", rows=10, dim=8)


def findings(sharding_type: ShardingType, *shards: tuple[int, int, int, int, int], world_size: int = 2) -> list[str]:
    plan = ShardingPlan(world_size, world_size, {"t": TablePlan(sharding_type, tuple(Shard(*s) for s in shards))})
    return [str(finding) for finding in check_plan(plan, {"t": T}, world_size, world_size)]


def test_whole_plans_have_no_findings() -> None:
    assert findings(ShardingType.TABLE_WISE, (1, 0, 10, 0, 8)) == []
    assert findings(ShardingType.ROW_WISE, (0, 0, 4, 0, 8), (1, 4, 10, 0, 8)) == []
    assert findings(ShardingType.ROW_WISE, (0, 0, 10, 0, 8), (1, 10, 10, 0, 8)) == []
    assert findings(ShardingType.COLUMN_WISE, (1, 0, 10, 0, 4), (0, 0, 10, 4, 8)) == []
    assert findings(ShardingType.DATA_PARALLEL, (0, 0, 10, 0, 8), (1, 0, 10, 0, 8)) == []


def test_r27_a_plan_for_another_world_is_refused() -> None:
    plan = ShardingPlan(4, 4, {"t": TablePlan(ShardingType.TABLE_WISE, (Shard(0, 0, 10, 0, 8),))})
    assert [str(finding) for finding in check_plan(plan, {"t": T}, 2, 2)] == [
        "world_size: the plan was made for 4, but this run has 2; plan again for this world",
        "local_world_size: the plan was made for 4, but this run has 2; plan again for this world",
    ]


def test_r27_a_plan_for_other_tables_is_refused() -> None:
    plan = ShardingPlan(1, 1, {"usr_id": TablePlan(ShardingType.TABLE_WISE, (Shard(0, 0, 10, 0, 8),))})
    assert [str(finding) for finding in check_plan(plan, {"user_id": T}, 1, 1)] == [
        "tables.user_id: this table of the model is not in the plan; add it",
        "tables.usr_id: the model has no such table; did you mean 'user_id'? Choices: user_id",
    ]


def test_r27_gaps_and_overlaps_are_named() -> None:
    assert findings(ShardingType.ROW_WISE, (0, 0, 4, 0, 8), (1, 5, 9, 0, 8)) == [
        "tables.t.shards: rows [4, 5) are in no shard; add a shard with rows: [4, 5], or let a neighbour reach over them",
        "tables.t.shards: rows [9, 10) are in no shard; add a shard with rows: [9, 10], or let a neighbour reach over them",
    ]
    assert findings(ShardingType.ROW_WISE, (0, 0, 6, 0, 8), (1, 4, 10, 0, 8)) == [
        "tables.t.shards: rows [4, 6) are in more than one shard; let one of the shards end where the other begins"
    ]
    assert findings(ShardingType.COLUMN_WISE, (0, 0, 10, 0, 6), (1, 0, 10, 5, 8)) == [
        "tables.t.shards: columns [5, 6) are in more than one shard; let one of the shards end where the other begins"
    ]
    assert findings(ShardingType.COLUMN_WISE, (0, 0, 10, 0, 6)) == [
        "tables.t.shards: columns [6, 8) are in no shard; add a shard with columns: [6, 8], or let a neighbour reach over them"
    ]


def test_an_overlap_within_a_longer_range_is_named() -> None:
    assert findings(ShardingType.ROW_WISE, (0, 0, 10, 0, 8), (1, 2, 3, 0, 8)) == [
        "tables.t.shards: rows [2, 3) are in more than one shard; let one of the shards end where the other begins"
    ]


def test_ranges_outside_the_table_and_ranks_outside_the_world() -> None:
    assert findings(ShardingType.ROW_WISE, (2, 0, 11, 0, 8), (0, 5, 3, 0, 9)) == [
        "tables.t.shards: the shard of rank 2, rows [0, 11), columns [0, 8), is on no rank of this world; write a rank from 0 to 1",
        "tables.t.shards: the shard of rank 2, rows [0, 11), columns [0, 8), has rows that are no range within [0, 10), those of the table; write rows: [begin, end] with 0 <= begin <= end <= 10",
        "tables.t.shards: the shard of rank 0, rows [5, 3), columns [0, 9), has rows that are no range within [0, 10), those of the table; write rows: [begin, end] with 0 <= begin <= end <= 10",
        "tables.t.shards: the shard of rank 0, rows [5, 3), columns [0, 9), has columns that are no range within [0, 8), those of the table; write columns: [begin, end] with 0 <= begin <= end <= 8",
    ]


def test_the_shape_of_shards_follows_the_sharding_type() -> None:
    assert findings(ShardingType.TABLE_WISE, (0, 0, 5, 0, 8), (1, 5, 10, 0, 8)) == [
        "tables.t.shards: a table_wise table has exactly one shard, not 2; join them on one rank, or use row_wise or column_wise"
    ]
    assert findings(ShardingType.TABLE_WISE, (0, 0, 5, 0, 8)) == [
        "tables.t.shards: the shard of rank 0, rows [0, 5), columns [0, 8), must have all rows of the table, for this sharding type; write rows: [0, 10], or another sharding_type"
    ]
    assert findings(ShardingType.COLUMN_WISE, (0, 0, 9, 0, 8))[0] == (
        "tables.t.shards: the shard of rank 0, rows [0, 9), columns [0, 8), must have all rows of the table, for this sharding type; write rows: [0, 10], or another sharding_type"
    )
    assert findings(ShardingType.ROW_WISE, (0, 0, 10, 0, 4))[0] == (
        "tables.t.shards: the shard of rank 0, rows [0, 10), columns [0, 4), must have all columns of the table, for this sharding type; write columns: [0, 8], or another sharding_type"
    )
    assert findings(ShardingType.COLUMN_WISE, (0, 0, 10, 0, 8), (1, 0, 10, 8, 8)) == [
        "tables.t.shards: the shard of rank 1, rows [0, 10), columns [8, 8), has no columns; leave it out"
    ]


def test_a_rank_may_hold_several_shards() -> None:
    assert findings(ShardingType.ROW_WISE, (0, 0, 4, 0, 8), (0, 4, 10, 0, 8)) == []
    assert findings(ShardingType.COLUMN_WISE, (1, 0, 10, 0, 4), (1, 0, 10, 4, 8)) == []


def test_a_data_parallel_table_is_once_on_every_rank() -> None:
    assert findings(ShardingType.DATA_PARALLEL, (0, 0, 10, 0, 8), (0, 0, 10, 0, 8), (1, 0, 10, 0, 8)) == [
        "tables.t.shards: rank 0 has more than one shard of this table; join them"
    ]
    assert findings(ShardingType.DATA_PARALLEL, (1, 0, 10, 0, 8), world_size=3) == [
        'tables.t.shards: a data_parallel table is on every rank, but ranks 0, 2 have no shard; write ranks: "all"'
    ]
    assert findings(ShardingType.DATA_PARALLEL, (0, 0, 10, 0, 8), world_size=20)[0] == (
        "tables.t.shards: a data_parallel table is on every rank, but ranks 1, 2, 3, 4, 5, 6, 7, 8 and 11 more have no "
        'shard; write ranks: "all"'
    )


@pytest.mark.parametrize("kind", list(ShardingType))
def test_an_empty_list_of_shards_says_what_to_write(kind: ShardingType) -> None:
    fix = 'begin with {"rank": 0, "rows": [0, 10], "columns": [0, 8]}'
    if kind is ShardingType.DATA_PARALLEL:
        fix = 'write ranks: "all" in its place'
    assert findings(kind) == [f"tables.t.shards: the list is empty, so that no rank holds the table; {fix}"]


def test_a_shard_is_named_as_it_stands_in_the_file_whatever_the_order_and_the_runs() -> None:
    """Sorting puts rank 1's shard last, and the first line of the file is two shards."""
    lines = [{"ranks": [0, 2], "rows": [0, 4], "columns": [0, 8]}, {"rank": 1, "rows": [4, 11], "columns": [0, 8]}]
    for order in (lines, lines[::-1]):
        table_plan = {"sharding_type": "row_wise", "shards": order}
        content = {"version": 1, "world_size": 2, "local_world_size": 2, "tables": {"t": table_plan}}
        found = [str(finding) for finding in check_plan(plan_from_dict(content, {"t": T}), {"t": T}, 2, 2)]
        assert found == [
            "tables.t.shards: the shard of rank 1, rows [4, 11), columns [0, 8), has rows that are no range within [0, 10), those of the table; write rows: [begin, end] with 0 <= begin <= end <= 10",
        ]
