from neo.plan.check import check_plan
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
        "tables.t.shards: rows [4, 5) are in no shard",
        "tables.t.shards: rows [9, 10) are in no shard",
    ]
    assert findings(ShardingType.ROW_WISE, (0, 0, 6, 0, 8), (1, 4, 10, 0, 8)) == [
        "tables.t.shards: rows [4, 6) are in more than one shard"
    ]
    assert findings(ShardingType.COLUMN_WISE, (0, 0, 10, 0, 6), (1, 0, 10, 5, 8)) == [
        "tables.t.shards: columns [5, 6) are in more than one shard"
    ]
    assert findings(ShardingType.COLUMN_WISE, (0, 0, 10, 0, 6)) == ["tables.t.shards: columns [6, 8) are in no shard"]


def test_an_overlap_within_a_longer_range_is_named() -> None:
    assert findings(ShardingType.ROW_WISE, (0, 0, 10, 0, 8), (1, 2, 3, 0, 8)) == [
        "tables.t.shards: rows [2, 3) are in more than one shard"
    ]


def test_ranges_outside_the_table_and_ranks_outside_the_world() -> None:
    assert findings(ShardingType.ROW_WISE, (2, 0, 11, 0, 8), (0, 5, 3, 0, 9)) == [
        "tables.t.shards[0].rank: rank 2 is outside [0, 2)",
        "tables.t.shards[0].rows: [0, 11) is no range within [0, 10), the rows of the table",
        "tables.t.shards[1].rows: [5, 3) is no range within [0, 10), the rows of the table",
        "tables.t.shards[1].columns: [0, 9) is no range within [0, 8), the columns of the table",
    ]


def test_the_shape_of_shards_follows_the_sharding_type() -> None:
    assert findings(ShardingType.TABLE_WISE, (0, 0, 5, 0, 8), (1, 5, 10, 0, 8)) == [
        "tables.t.shards: a table_wise table has exactly one shard, not 2"
    ]
    assert findings(ShardingType.TABLE_WISE, (0, 0, 5, 0, 8)) == [
        "tables.t.shards[0].rows: [0, 5) must be all rows of the table, [0, 10), for this sharding type"
    ]
    assert findings(ShardingType.COLUMN_WISE, (0, 0, 9, 0, 8))[0] == (
        "tables.t.shards[0].rows: [0, 9) must be all rows of the table, [0, 10), for this sharding type"
    )
    assert findings(ShardingType.ROW_WISE, (0, 0, 10, 0, 4))[0] == (
        "tables.t.shards[0].columns: [0, 4) must be all columns of the table, [0, 8), for this sharding type"
    )
    assert findings(ShardingType.COLUMN_WISE, (0, 0, 10, 0, 8), (1, 0, 10, 8, 8)) == [
        "tables.t.shards[1].columns: a column shard without columns; leave it out"
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
    assert findings(ShardingType.DATA_PARALLEL, world_size=20)[0] == (
        "tables.t.shards: a data_parallel table is on every rank, but ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more have no "
        'shard; write ranks: "all"'
    )
