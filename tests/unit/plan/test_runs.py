"""Lines of ``plan.json`` that stand for runs of shards of nested types: written, read back, refused."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neo.errors import ConfigError
from neo.plan.check import check_plan
from neo.plan.serialize import plan_from_dict, plan_text, plan_to_dict
from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType, TablePlan, even_splits, reading_order
from unit.plan.builders import machine, plan_for, table, tables

TENS = machine(accelerators_per_node=10, num_nodes=4)


def written(mode: str, rows: int, dim: int, world_size: int) -> list[dict[str, Any]]:
    specs = tables(table("t", rows=rows, dim=dim), prefix="")
    plan = plan_for(specs, mode, world_size=world_size, hardware=TENS).plan
    assert plan_from_dict(json.loads(plan_text(plan))) == plan
    lines: list[dict[str, Any]] = plan_to_dict(plan)["tables"]["t"]["shards"]
    return lines


def test_long_runs_within_a_node_are_abbreviated() -> None:
    assert written("table_row_wise", 100, 4, 40) == [{"ranks": [0, 10], "rows": [0, 100], "columns": [0, 4]}]
    assert written("table_column_wise", 7, 20, 40) == [{"ranks": [0, 10], "rows": [0, 7], "columns": [0, 20]}]


def test_a_grid_over_all_nodes_is_one_line_whatever_its_rows() -> None:
    assert written("grid", 103, 8, 40) == [{"ranks": "all", "rows": [0, 103], "columns": [0, 8]}]


def test_column_ranges_of_two_widths_are_two_lines() -> None:
    assert written("grid", 103, 10, 40) == [
        {"ranks": [0, 20], "rows": [0, 103], "columns": [0, 6]},
        {"ranks": [20, 40], "rows": [0, 103], "columns": [6, 10]},
    ]


def test_a_smaller_last_node_joins_the_line() -> None:
    assert written("grid", 103, 8, 35) == [{"ranks": "all", "rows": [0, 103], "columns": [0, 8]}]


def test_a_grid_on_4096_ranks_stays_readable() -> None:
    rows = even_splits(1003, 8)
    shards = [Shard(8 * n + r, *rows[r], 4 * n, 4 * n + 4) for n in range(512) for r in range(8)]
    grid = TablePlan(ShardingType.GRID, tuple(sorted(shards, key=reading_order)))
    plan = ShardingPlan(4096, 8, {f"t{index}": grid for index in range(20)})
    assert len(plan_text(plan).splitlines()) == 6 + 6 * 20 + 1
    assert plan_from_dict(json.loads(plan_text(plan))) == plan


def read(entry: dict[str, Any]) -> str:
    content = {"version": 1, "world_size": 5, "local_world_size": 2}
    shards = [{"rows": [0, 10], "columns": [0, 8]} | entry]
    with pytest.raises(ConfigError) as caught:
        plan_from_dict(content | {"tables": {"t": {"sharding_type": "grid", "shards": shards}}})
    (finding,) = caught.value.findings
    return str(finding)


def test_a_grid_line_has_whole_nodes_or_a_part_of_one() -> None:
    assert read({"ranks": [1, 4]}) == (
        "tables.t.shards[0].ranks: [1, 4] is neither a part of one node nor whole nodes of 2 ranks; "
        "write a line for each node"
    )


def test_a_grid_line_whose_columns_cannot_be_cut_evenly() -> None:
    assert read({"ranks": "all"}) == (
        "tables.t.shards[0].columns: [0, 8) cannot be cut into 3 equal parts for the nodes of this line; "
        "write two lines, each with parts of one size"
    )


@st.composite
def grids(draw: st.DrawFn) -> tuple[ShardingPlan, int, int]:
    """Return a legal plan of one grid table, its rows and its dim: any cuts, any nodes, any ranks of each."""
    world_size, per_node = draw(st.integers(1, 30)), draw(st.integers(1, 12))
    per_node = min(per_node, world_size)
    rows, dim = draw(st.integers(1, 50)), draw(st.integers(1, 20))
    cuts = sorted({0, dim, *draw(st.lists(st.integers(0, dim), max_size=6))})
    shards = []
    for first, last in pairwise(cuts):
        node = draw(st.integers(0, -(-world_size // per_node) - 1))
        ranks = range(node * per_node, min(world_size, (node + 1) * per_node))
        used = ranks if draw(st.booleans()) else ranks[: draw(st.integers(1, len(ranks)))]
        for rank, bounds in zip(used, even_splits(rows, len(used)), strict=True):
            shards.append(Shard(rank, *bounds, first, last))
    placed = TablePlan(ShardingType.GRID, tuple(sorted(shards, key=reading_order)))
    return ShardingPlan(world_size, per_node, {"t": placed}), rows, dim


@settings(max_examples=200, deadline=None)
@given(grids())
def test_any_grid_survives_the_file(drawn: tuple[ShardingPlan, int, int]) -> None:
    plan, rows, dim = drawn
    assert check_plan(plan, {"t": table("t", rows, dim)}, plan.world_size, plan.local_world_size) == []
    assert plan_from_dict(json.loads(plan_text(plan))) == plan


@settings(max_examples=100, deadline=None)
@given(
    mode=st.sampled_from(["table_row_wise", "table_column_wise", "grid", "auto"]),
    world_size=st.integers(1, 40),
    per_node=st.integers(1, 20),
    shapes=st.lists(st.tuples(st.integers(1, 300), st.integers(1, 40)), min_size=1, max_size=4),
)
def test_nested_plans_survive_the_file(
    mode: str, world_size: int, per_node: int, shapes: list[tuple[int, int]]
) -> None:
    specs = tables(*(table(f"t{index}", rows, dim) for index, (rows, dim) in enumerate(shapes)))
    hardware = machine(accelerators_per_node=per_node)
    plan = plan_for(specs, mode, world_size=world_size, hardware=hardware).plan
    assert plan_from_dict(json.loads(plan_text(plan, "0" * 16))) == plan
