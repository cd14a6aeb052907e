"""Whether a plan is whole: made for this world, every table exactly once, every table tiled exactly."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from neo.errors import Finding
from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType, TablePlan
from neo.plan.table_names import nearest_table
from neo.tables.spec import TableSpec

Range = tuple[int, int]


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
        Findings with keys relative to the plan (``tables.user_id.shards[1].rows``); empty for a good plan.
    """
    findings = _check_world("world_size", plan.world_size, world_size)
    findings += _check_world("local_world_size", plan.local_world_size, local_world_size)
    missing = sorted(set(tables) - set(plan.tables))
    findings += [Finding(f"tables.{key}", "this table of the model is not in the plan", "add it") for key in missing]
    for key in sorted(set(plan.tables) - set(tables)):
        findings.append(Finding(f"tables.{key}", "the model has no such table", nearest_table(key, missing or tables)))
    for key, table_plan in plan.tables.items():
        if key in tables:
            in_table = check_table_plan(table_plan, tables[key], plan.world_size)
            findings += [finding.under(f"tables.{key}") for finding in in_table]
    return findings


def check_table_plan(table_plan: TablePlan, table: TableSpec, world_size: int) -> list[Finding]:
    """Return everything that is wrong with the placement of one table, keys relative to it."""
    findings = _out_of_bounds(table_plan.shards, table, world_size)
    if findings:
        return findings
    return _CHECKS[table_plan.sharding_type](table_plan.shards, table, world_size)


def _check_world(key: str, planned: int, actual: int) -> list[Finding]:
    if planned == actual:
        return []
    return [Finding(key, f"the plan was made for {planned}, but this run has {actual}", "plan again for this world")]


def _out_of_bounds(shards: Sequence[Shard], table: TableSpec, world_size: int) -> list[Finding]:
    findings = []
    for index, shard in enumerate(shards):
        if not 0 <= shard.rank < world_size:
            findings.append(Finding(f"shards[{index}].rank", f"rank {shard.rank} is outside [0, {world_size})"))
        sides = (
            ("rows", shard.row_begin, shard.row_end, table.num_embeddings),
            ("columns", shard.column_begin, shard.column_end, table.embedding_dim),
        )
        for side, begin, end, length in sides:
            if not 0 <= begin <= end <= length:
                problem = f"[{begin}, {end}) is no range within [0, {length}), the {side} of the table"
                findings.append(Finding(f"shards[{index}].{side}", problem))
    return findings


def _check_table_wise(shards: Sequence[Shard], table: TableSpec, world_size: int) -> list[Finding]:
    if len(shards) != 1:
        return [Finding("shards", f"a table_wise table has exactly one shard, not {len(shards)}")]
    return _not_full(shards, table, ("rows", "columns"))


def _check_row_wise(shards: Sequence[Shard], table: TableSpec, world_size: int) -> list[Finding]:
    findings = _not_full(shards, table, ("columns",))
    return findings + _tiling(shards, table.num_embeddings, "rows", lambda s: (s.row_begin, s.row_end))


def _check_column_wise(shards: Sequence[Shard], table: TableSpec, world_size: int) -> list[Finding]:
    findings = _not_full(shards, table, ("rows",))
    for index, shard in enumerate(shards):
        if shard.num_columns == 0:
            findings.append(Finding(f"shards[{index}].columns", "a column shard without columns", "leave it out"))
    return findings + _tiling(shards, table.embedding_dim, "columns", lambda s: (s.column_begin, s.column_end))


def _check_data_parallel(shards: Sequence[Shard], table: TableSpec, world_size: int) -> list[Finding]:
    findings = _not_full(shards, table, ("rows", "columns")) + _twice_on_a_rank(shards)
    absent = sorted(set(range(world_size)) - {shard.rank for shard in shards})
    if absent:
        problem = f"a data_parallel table is on every rank, but {_listed(absent)} {_have(absent)} no shard"
        findings.append(Finding("shards", problem, 'write ranks: "all"'))
    return findings


_CHECKS: Mapping[ShardingType, Callable[[Sequence[Shard], TableSpec, int], list[Finding]]] = {
    ShardingType.TABLE_WISE: _check_table_wise,
    ShardingType.ROW_WISE: _check_row_wise,
    ShardingType.COLUMN_WISE: _check_column_wise,
    ShardingType.DATA_PARALLEL: _check_data_parallel,
}


def _not_full(shards: Sequence[Shard], table: TableSpec, sides: tuple[str, ...]) -> list[Finding]:
    findings = []
    for index, shard in enumerate(shards):
        ranges = {
            "rows": (shard.row_begin, shard.row_end, table.num_embeddings),
            "columns": (shard.column_begin, shard.column_end, table.embedding_dim),
        }
        for side in sides:
            begin, end, length = ranges[side]
            if (begin, end) != (0, length):
                problem = f"[{begin}, {end}) must be all {side} of the table, [0, {length}), for this sharding type"
                findings.append(Finding(f"shards[{index}].{side}", problem))
    return findings


def _twice_on_a_rank(shards: Sequence[Shard]) -> list[Finding]:
    counts = Counter(shard.rank for shard in shards)
    twice = sorted(rank for rank, count in counts.items() if count > 1)
    if not twice:
        return []
    return [Finding("shards", f"{_listed(twice)} {_have(twice)} more than one shard of this table", "join them")]


def _tiling(shards: Sequence[Shard], length: int, side: str, bounds: Callable[[Shard], Range]) -> list[Finding]:
    """Check that the ranges of ``shards`` cover ``[0, length)`` exactly once."""
    findings = []
    reached = 0
    for begin, end in sorted(bounds(shard) for shard in shards if bounds(shard)[0] < bounds(shard)[1]):
        if begin > reached:
            findings.append(Finding("shards", f"{side} [{reached}, {begin}) are in no shard"))
        if begin < reached:
            findings.append(Finding("shards", f"{side} [{begin}, {min(end, reached)}) are in more than one shard"))
        reached = max(reached, end)
    if reached < length:
        findings.append(Finding("shards", f"{side} [{reached}, {length}) are in no shard"))
    return findings


def _have(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _listed(ranks: Sequence[int], limit: int = 8) -> str:
    named = ", ".join(str(rank) for rank in ranks[:limit])
    more = f" and {len(ranks) - limit} more" if len(ranks) > limit else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {named}{more}"
