"""Nested types: which node, which ranks, which columns; what fits nowhere; what ``auto`` makes of nodes."""

import pytest

from neo.errors import InfeasiblePlanError
from neo.ops import spec as ops_spec
from neo.ops.spec import FbgemmStatus
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.memory import rank_bytes
from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType, Tier
from neo.planner.capacity import ShortOfMemoryError
from unit.plan.builders import machine, plan_for, table, tables

SGD = SparseOptimizerSpec(name="sgd")
PAIRS = machine(accelerators_per_node=2, num_nodes=4)


def shards_of(plan: ShardingPlan, key: str) -> tuple[Shard, ...]:
    return plan.tables[key].shards


def nodes(plan: ShardingPlan, key: str) -> set[int]:
    return {shard.rank // plan.local_world_size for shard in plan.tables[key].shards}


def test_table_row_wise_cuts_the_rows_over_the_ranks_of_one_node() -> None:
    plan = plan_for(tables(table("t", rows=5), prefix=""), "table_row_wise", world_size=6, hardware=PAIRS).plan
    assert shards_of(plan, "t") == (Shard(0, 0, 3, 0, 8), Shard(1, 3, 5, 0, 8))
    plan = plan_for(tables(table("t", rows=1), prefix=""), "table_row_wise", world_size=6, hardware=PAIRS).plan
    assert shards_of(plan, "t") == (Shard(0, 0, 1, 0, 8), Shard(1, 1, 1, 0, 8))


def test_table_column_wise_cuts_the_columns_over_the_ranks_of_one_node() -> None:
    plan = plan_for(tables(table("t", dim=7), prefix=""), "table_column_wise", world_size=6, hardware=PAIRS).plan
    assert shards_of(plan, "t") == (Shard(0, 0, 100, 0, 4), Shard(1, 0, 100, 4, 7))
    plan = plan_for(tables(table("t", dim=1), prefix=""), "table_column_wise", world_size=6, hardware=PAIRS).plan
    assert shards_of(plan, "t") == (Shard(0, 0, 100, 0, 1),)


def test_grid_cuts_the_columns_over_nodes_and_the_rows_of_each_over_its_ranks() -> None:
    named = tables(table("t", rows=5, dim=7), prefix="")
    plan = plan_for(named, "grid", world_size=5, hardware=PAIRS).plan
    assert shards_of(plan, "t") == (
        Shard(0, 0, 3, 0, 3),
        Shard(2, 0, 3, 3, 5),
        Shard(4, 0, 5, 5, 7),  # The last node has one rank.
        Shard(1, 3, 5, 0, 3),
        Shard(3, 3, 5, 3, 5),
    )


@pytest.mark.parametrize("mode", ["table_row_wise", "table_column_wise", "grid"])
def test_tables_are_dealt_so_that_nodes_are_even(mode: str) -> None:
    named = tables(*(table(f"t{index}", rows=1000, dim=32) for index in range(8)), prefix="")
    plan = plan_for(named, mode, world_size=8, hardware=PAIRS).plan
    sizes = {rank[Tier.HBM].total for rank in rank_bytes(plan, dict.fromkeys(named, SGD))}
    assert len(sizes) == 1
    if mode != "grid":
        assert [len(nodes(plan, key)) for key in named] == [1] * 8


def test_the_load_that_nodes_carry_already_counts() -> None:
    named = tables(table("big", rows=10_000), *(table(f"t{index}", rows=4_000) for index in range(4)), prefix="")
    two = machine(accelerators_per_node=2, num_nodes=2)
    plan = plan_for(named, "table_row_wise", world_size=4, hardware=two).plan
    assert nodes(plan, "big") == {0}
    assert [nodes(plan, f"t{index}") for index in range(4)] == [{1}, {1}, {0}, {1}]


def test_a_smaller_last_node_is_passed_over_while_it_would_be_the_fullest() -> None:
    named = tables(table("a", rows=1000), table("b", rows=1000), table("c", rows=100), prefix="")
    plan = plan_for(named, "table_row_wise", world_size=5, hardware=PAIRS).plan
    assert [nodes(plan, key) for key in named] == [{0}, {1}, {2}]


def test_memory_goes_before_balance() -> None:
    # 100 x 8 fp32 are 3,200 B, 1,600 B on each of two ranks; a rank holds 2,000 B.
    named = tables(table("a"), table("b"), table("c"), table("d", rows=50), prefix="")
    plan = plan_for(named, "table_row_wise", world_size=8, hardware=machine(2_000, 2, 4)).plan
    assert [nodes(plan, key) for key in named] == [{0}, {1}, {2}, {3}]
    with pytest.raises(InfeasiblePlanError) as caught:
        plan_for(named, "table_row_wise", world_size=6, hardware=machine(2_000, 2, 3))
    assert str(caught.value) == (
        "no plan was found: table 'd' finds no place with the forced type table_row_wise.\n"
        "  It needs 800 B of hbm on one rank; the best rank (0) has 400 B left of 2,000 B (2.0 KiB).\n"
        "  All tables once, with optimizer state, are 11,200 B (10.9 KiB); 6 ranks have 12,000 B (11.7 KiB).\n"
        "  Binding constraint: hardware.accelerator.hbm.capacity.\n"
        "  sharding=auto without overrides was planned and fits."
    )


def test_column_ranges_of_a_grid_share_a_node_where_another_has_no_room() -> None:
    # 99 x 8 fp32: half of the columns are 1,584 B on the one rank of node 1, and 528 B on each of three of node 0.
    named = tables(table("t", rows=99), prefix="")
    roomy, narrow = (
        plan_for(named, "grid", world_size=4, hardware=machine(hbm_bytes, 3, 2)).plan for hbm_bytes in (1_584, 1_583)
    )
    assert nodes(roomy, "t") == {0, 1}
    assert nodes(narrow, "t") == {0}
    assert len(narrow.tables["t"].column_ranges) == 2


@pytest.mark.parametrize(("mode", "needed"), [("table_row_wise", 1_600), ("table_column_wise", 1_600), ("grid", 800)])
def test_r26_what_fits_on_no_node_is_infeasible(mode: str, needed: int) -> None:
    named = tables(table("t"), prefix="")
    with pytest.raises(ShortOfMemoryError, match=f"'t' finds no place with the forced type {mode}") as caught:
        plan_for(named, mode, world_size=4, hardware=machine(needed - 1, 2, 2))
    assert caught.value.shortage.needed_on_one_rank == needed
    assert plan_for(named, mode, world_size=4, hardware=machine(needed, 2, 2)).plan.tables["t"].sharding_type == mode


def test_r8_nested_column_widths_are_those_that_the_kernel_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops_spec, "fbgemm_status", lambda: FbgemmStatus(True))
    named = tables(table("t", dim=20), prefix="")
    for mode, world_size in (("grid", 8), ("table_column_wise", 4)):
        hardware = machine(accelerators_per_node=8 // 4 if mode == "grid" else 4, num_nodes=4)
        plan = plan_for(named, mode, world_size=world_size, hardware=hardware, ops_backend="fbgemm").plan
        assert [end - begin for begin, end in plan.tables["t"].column_ranges] == [8, 4, 4, 4]
        plan = plan_for(named, mode, world_size=world_size, hardware=hardware, ops_backend="reference").plan
        assert [end - begin for begin, end in plan.tables["t"].column_ranges] == [5, 5, 5, 5]


def test_one_node_is_a_node_too() -> None:
    named = tables(table("t", rows=4), prefix="")
    for mode in ("table_row_wise", "grid"):
        plan = plan_for(named, mode, world_size=2).plan
        assert shards_of(plan, "t") == (Shard(0, 0, 2, 0, 8), Shard(1, 2, 4, 0, 8))
    one_each = machine(accelerators_per_node=1, num_nodes=2)
    plan = plan_for(named, "grid", world_size=2, hardware=one_each).plan
    assert shards_of(plan, "t") == (Shard(0, 0, 4, 0, 4), Shard(1, 0, 4, 4, 8))


def test_auto_splits_rows_within_a_node_where_one_holds_them() -> None:
    named = tables(table("huge", rows=100_000), *(table(f"t{index}", rows=1000) for index in range(4)), prefix="")

    def kind(hbm_bytes: int) -> ShardingType:
        plan = plan_for(named, world_size=8, hardware=machine(hbm_bytes, 4, 2)).plan
        return plan.tables["huge"].sharding_type

    # 3,200,000 B: half of it fits on a rank; an eighth does, but no quarter; nothing does.
    assert kind(1_700_000) is ShardingType.TABLE_ROW_WISE
    assert kind(500_000) is ShardingType.ROW_WISE
    assert plan_for(named, world_size=8).plan.tables["huge"].sharding_type is ShardingType.ROW_WISE  # One node.
