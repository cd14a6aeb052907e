"""Whether a plan is whole: made for this world, every table exactly once, every table tiled exactly.

A rank may hold several shards of one table, of every type but ``data_parallel`` and ``table_wise``, even such that
touch and could be one. Each is looked up and updated by itself, as shards on different ranks are, so that the result is
as exact as that of any other tiling; joining them would only save work.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from neo.errors import Finding
from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType, TablePlan
from neo.plan.table_names import nearest_table
from neo.plan.tiling import (
    beyond_a_node,
    columns_of,
    gaps_and_overlaps,
    have,
    in_words,
    listed,
    not_full,
    out_of_bounds,
    rows_of,
    twice_on_a_rank,
    without_columns,
)
from neo.tables.spec import TableSpec


@dataclass(frozen=True)
class _World:
    """The ranks that a plan was made for."""

    size: int
    local_size: int


def check_plan(
    plan: ShardingPlan, tables: Mapping[str, TableSpec], world_size: int, local_world_size: int
) -> list[Finding]:
    """Return everything that makes ``plan`` unfit for these tables on this world.

    Args:
        plan: The plan.
        tables: The tables of the model, by plan key.
        world_size: Ranks of the run.
        local_world_size: Ranks of a full node.

    Returns:
        Findings with keys relative to the plan (``tables.user_id.shards``), shards named by rank and ranges; empty for
        a good plan.
    """
    findings = _check_world("world_size", plan.world_size, world_size)
    findings += _check_world("local_world_size", plan.local_world_size, local_world_size)
    missing = sorted(set(tables) - set(plan.tables))
    findings += [Finding(f"tables.{key}", "this table of the model is not in the plan", "add it") for key in missing]
    for key in sorted(set(plan.tables) - set(tables)):
        findings.append(Finding(f"tables.{key}", "the model has no such table", nearest_table(key, missing or tables)))
    for key, table_plan in plan.tables.items():
        if key in tables:
            in_table = check_table_plan(table_plan, tables[key], plan.world_size, plan.local_world_size)
            findings += [finding.under(f"tables.{key}") for finding in in_table]
    return findings


def check_table_plan(table_plan: TablePlan, table: TableSpec, world_size: int, local_world_size: int) -> list[Finding]:
    """Return everything that is wrong with the placement of one table, keys relative to it.

    Args:
        table_plan: The placement.
        table: The table.
        world_size: Ranks of the plan.
        local_world_size: Ranks of a full node of the plan; the last node may have fewer.
    """
    if not table_plan.shards:
        return [_no_shards(table_plan.sharding_type, table)]
    findings = out_of_bounds(table_plan.shards, table, world_size)
    if findings:
        return findings
    world = _World(world_size, max(1, local_world_size))
    return _CHECKS[table_plan.sharding_type](table_plan.shards, table, world)


def _check_world(key: str, planned: int, actual: int) -> list[Finding]:
    if planned == actual:
        return []
    return [Finding(key, f"the plan was made for {planned}, but this run has {actual}", "plan again for this world")]


def _no_shards(sharding_type: ShardingType, table: TableSpec) -> Finding:
    whole = f'{{"rank": 0, "rows": [0, {table.num_embeddings}], "columns": [0, {table.embedding_dim}]}}'
    fix = 'write ranks: "all" in its place' if sharding_type is ShardingType.DATA_PARALLEL else f"begin with {whole}"
    return Finding("shards", "the list is empty, so that no rank holds the table", fix)


def _check_table_wise(shards: Sequence[Shard], table: TableSpec, world: _World) -> list[Finding]:
    if len(shards) != 1:
        problem = f"a table_wise table has exactly one shard, not {len(shards)}"
        return [Finding("shards", problem, "join them on one rank, or use row_wise or column_wise")]
    return not_full(shards, table, ("rows", "columns"))


def _check_row_wise(shards: Sequence[Shard], table: TableSpec, world: _World) -> list[Finding]:
    findings = not_full(shards, table, ("columns",))
    return findings + gaps_and_overlaps(map(rows_of, shards), table.num_embeddings, "rows")


def _check_column_wise(shards: Sequence[Shard], table: TableSpec, world: _World) -> list[Finding]:
    findings = not_full(shards, table, ("rows",)) + without_columns(shards)
    return findings + gaps_and_overlaps(map(columns_of, shards), table.embedding_dim, "columns")


def _check_table_row_wise(shards: Sequence[Shard], table: TableSpec, world: _World) -> list[Finding]:
    return _check_row_wise(shards, table, world) + _on_one_node(shards, world, "a table_row_wise table", "row_wise")


def _check_table_column_wise(shards: Sequence[Shard], table: TableSpec, world: _World) -> list[Finding]:
    return _check_column_wise(shards, table, world) + _on_one_node(
        shards, world, "a table_column_wise table", "column_wise"
    )


def _check_grid(shards: Sequence[Shard], table: TableSpec, world: _World) -> list[Finding]:
    """Check that the columns are tiled by ranges, and the rows of each range by shards on one node."""
    by_columns: dict[tuple[int, int], list[Shard]] = {}
    for shard in shards:
        by_columns.setdefault(columns_of(shard), []).append(shard)
    findings = without_columns(shards)
    findings += gaps_and_overlaps(by_columns, table.embedding_dim, "columns")
    if findings:
        return findings
    for columns, of_columns in sorted(by_columns.items()):
        of = in_words(" of columns")(columns)
        findings += gaps_and_overlaps(map(rows_of, of_columns), table.num_embeddings, "rows", of)
        what = f"what a grid table has of columns [{columns[0]}, {columns[1]})"
        findings += _on_one_node(of_columns, world, what, "cut the columns there")
    return findings


def _check_data_parallel(shards: Sequence[Shard], table: TableSpec, world: _World) -> list[Finding]:
    findings = not_full(shards, table, ("rows", "columns")) + twice_on_a_rank(shards)
    absent = sorted(set(range(world.size)) - {shard.rank for shard in shards})
    if absent:
        problem = f"a data_parallel table is on every rank, but {listed(absent)} {have(absent)} no shard"
        findings.append(Finding("shards", problem, 'write ranks: "all"'))
    return findings


_CHECKS: Mapping[ShardingType, Callable[[Sequence[Shard], TableSpec, _World], list[Finding]]] = {
    ShardingType.TABLE_WISE: _check_table_wise,
    ShardingType.ROW_WISE: _check_row_wise,
    ShardingType.COLUMN_WISE: _check_column_wise,
    ShardingType.DATA_PARALLEL: _check_data_parallel,
    ShardingType.TABLE_ROW_WISE: _check_table_row_wise,
    ShardingType.TABLE_COLUMN_WISE: _check_table_column_wise,
    ShardingType.GRID: _check_grid,
}


def _on_one_node(shards: Sequence[Shard], world: _World, what: str, fix: str) -> list[Finding]:
    return beyond_a_node(shards, what=what, fix=fix, world_size=world.size, local_world_size=world.local_size)
