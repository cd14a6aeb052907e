import pytest

from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ShardingType
from neo.planner.problem import PlacementProblem, TableTask
from neo.planner.work import Work
from unit.plan.builders import table

SGD = SparseOptimizerSpec(name="sgd")
# Two tables of 100 x 8, pooling 3 and 1, SGD: 3,200 B each; (3 + 1) x 8 = 32 and (1 + 1) x 8 = 16 elements per sample.
TASKS = tuple(
    TableTask(name, table(name, pooling_factor=pooling), "reference", 1, None, SGD)
    for name, pooling in (("a", 3), ("b", 1))
)
WORK = Work.of(PlacementProblem(TASKS, 4, 4, 10**9, "greedy"))


def test_whole_tables_sum_to_2() -> None:
    loads = [WORK.of_whole(task).load for task in TASKS]
    assert loads == pytest.approx([32 / 48 + 1 / 2, 16 / 48 + 1 / 2])
    assert [WORK.of_whole(task).num_bytes for task in TASKS] == [3200, 3200]


def test_a_column_shard_is_its_share_of_everything() -> None:
    piece = WORK.of_columns(TASKS[0], 2)
    assert piece.load == pytest.approx((32 / 48 + 1 / 2) / 4)
    assert piece.num_bytes == 800


def test_a_row_wise_rank_reads_its_share_but_sends_for_every_sample() -> None:
    load, num_bytes = WORK.per_rank(TASKS[0], ShardingType.ROW_WISE)
    assert load == pytest.approx((24 / 4 + 8) / 48 + 1 / 8)
    assert num_bytes.tolist() == [800] * 4


def test_rows_over_the_ranks_of_a_node() -> None:
    load, num_bytes = WORK.of_rows(TASKS[0], 4, 2)
    assert load == pytest.approx((12 / 2 + 4) / 48 + 1 / 8)
    assert num_bytes.tolist() == [800] * 2


def test_row_wise_bytes_follow_the_rows_of_each_rank() -> None:
    odd = TableTask("c", table("c", rows=10), "reference", 1, None, SGD)
    assert WORK.per_rank(odd, ShardingType.ROW_WISE)[1].tolist() == [96, 96, 64, 64]


def test_a_replica_is_whole_on_every_rank() -> None:
    load, num_bytes = WORK.per_rank(TASKS[0], ShardingType.DATA_PARALLEL)
    assert load == pytest.approx((24 / 4 + 2 * 100 * 8 / 2048) / 48 + 1 / 2)
    assert num_bytes.tolist() == [3200] * 4
