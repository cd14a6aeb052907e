"""Forced types that come to a simpler one here are told, all others are not."""

import pytest

from neo.plan.sharding_plan import ShardingType
from unit.plan.builders import machine, plan_for, table, tables

T = tables(table("a"), table("b"), table("c"), table("d"), prefix="")
NESTED = ["table_row_wise", "table_column_wise", "grid"]


def notes(mode: str, world_size: int, per_node: int) -> tuple[str, ...]:
    nodes = -(-world_size // per_node)
    hardware = machine(accelerators_per_node=per_node, num_nodes=nodes)
    return plan_for(T, mode, world_size=world_size, hardware=hardware).fallbacks


@pytest.mark.parametrize(
    ("mode", "world_size", "per_node", "note"),
    [
        ("grid", 2, 2, "grid comes to row_wise on one node"),
        ("grid", 2, 1, "grid comes to column_wise on nodes of one rank"),
        ("grid", 1, 1, "grid comes to table_wise on one rank"),
        ("table_row_wise", 2, 1, "table_row_wise comes to table_wise on a node of one rank"),
        ("table_column_wise", 2, 1, "table_column_wise comes to table_wise on a node of one rank"),
        ("table_row_wise", 1, 1, "table_row_wise comes to table_wise on one rank"),
        ("column_wise", 1, 1, "column_wise comes to table_wise on one rank"),
    ],
)
def test_a_forced_type_that_comes_to_a_simpler_one_is_told(
    mode: str, world_size: int, per_node: int, note: str
) -> None:
    assert notes(mode, world_size, per_node) == (f"a, b, c and 1 more: {note}",)


@pytest.mark.parametrize("mode", [*NESTED, "row_wise", "column_wise", "table_wise", "data_parallel", "auto"])
def test_types_that_cut_as_they_say_are_not_told(mode: str) -> None:
    assert notes(mode, 4, 2) == ()


def test_an_override_of_one_table_is_told_for_it_alone() -> None:
    result = plan_for(T, "table_wise", world_size=2, overrides={"b": "grid"})
    assert result.fallbacks == ("b: grid comes to row_wise on one node",)
    assert result.plan.tables["b"].sharding_type is ShardingType.GRID


def test_a_table_too_narrow_for_a_grid_lies_on_one_node() -> None:
    narrow = tables(table("a", dim=1), prefix="")
    hardware = machine(accelerators_per_node=2, num_nodes=2)
    told = plan_for(narrow, "grid", world_size=4, hardware=hardware).fallbacks
    assert told == ("a: grid comes to table_row_wise where the columns are too few to be cut",)
