"""``sharding=file``: a plan that somebody else made, read, checked, and given the kernels of this run."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from neo.errors import ConfigError, Finding
from neo.ops.spec import Device
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.check import check_plan
from neo.plan.plan_reader import read_plan
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingPlan, TablePlan, Tier
from neo.planner.kernels import KernelRequest, decide_kernels, requests_of_given_plan
from neo.planner.semantics import NO_SUCH_TABLE, rowwise_on_columns, shares_row_state
from neo.planner.spec import ShardingSpec
from neo.tables.spec import TableSpec


def given_plan(
    path: Path,
    tables: Mapping[str, TableSpec],
    *,
    world_size: int,
    local_world_size: int,
    optimizers: Mapping[str, SparseOptimizerSpec],
    semantics: ColumnWiseSemantics | None,
    ops_backend: str,
    device: Device,
) -> tuple[ShardingPlan, tuple[str, ...]]:
    """Read the plan at ``path`` for these tables on this world.

    Args:
        path: The file.
        tables: The tables by plan key.
        world_size: Ranks.
        local_world_size: Ranks of a full node.
        optimizers: Sparse optimizer of each table, by plan key.
        semantics: What a row-wise optimizer is to do on column shards; None leaves it to the plan.
        ops_backend: ``auto``, which leaves the plan's kernels, or the backend asked for.
        device: Where the kernels will run.

    Returns:
        The plan with every kernel decided, in alphabetical order of its keys, its column-wise semantics where they
        matter, and what is not as the file says.

    Raises:
        ConfigError: It cannot be read, was made for another world, other tables or other column-wise semantics, does
            not tile a table exactly, or uses what cannot be executed.
    """
    plan = read_plan(path, tables)
    findings = check_plan(plan, tables, world_size, local_world_size)
    findings += [finding for key, placed in plan.tables.items() for finding in _not_executable(key, placed)]
    if findings:
        raise ConfigError(_in_file(path, findings))
    depending = rowwise_on_columns(plan, optimizers)
    refused = _contradiction(path, plan, depending, semantics)
    if refused:
        raise ConfigError(refused)
    effective = ShardingSpec(column_wise_semantics=plan.column_wise_semantics or semantics).semantics
    planned = {key: _request(tables[key], plan.tables[key], optimizers[key], effective) for key in sorted(plan.tables)}
    replicated = {key for key in planned if plan.tables[key].is_replicated}
    try:
        requests, told = requests_of_given_plan(planned, replicated=replicated, ops_backend=ops_backend)
    except ConfigError as error:
        raise ConfigError(_in_file(path, error.findings)) from error
    choices, refused = decide_kernels(requests, device=device)
    if refused:
        raise ConfigError(refused)
    placed = {key: replace(plan.tables[key], kernel=choices.kernels[key]) for key in planned}
    if plan.column_wise_semantics is ColumnWiseSemantics.PER_SHARD and not depending:
        told += (f"column_wise_semantics: the plan's per_shard has no effect: {NO_SUCH_TABLE}",)
    kept = effective if depending else None
    return ShardingPlan(world_size, local_world_size, placed, kept), told + choices.fallbacks


def _contradiction(
    path: Path, plan: ShardingPlan, depending: tuple[str, ...], asked: ColumnWiseSemantics | None
) -> list[Finding]:
    """Return what is wrong with semantics that the configuration asks for beside those of the plan."""
    key, written = "sharding.column_wise_semantics", plan.column_wise_semantics
    if asked is not None and written is not None and asked is not written:
        fix = "leave it out to train as planned, or plan again with it"
        return [Finding(key, f"'{asked}' contradicts '{path}', which was planned with '{written}'", fix)]
    if asked is ColumnWiseSemantics.PER_SHARD and not depending:
        return [Finding(key, f"'per_shard' has no effect on the plan '{path}': {NO_SUCH_TABLE}", "leave it out")]
    return []


def _request(
    table: TableSpec, placed: TablePlan, optimizer: SparseOptimizerSpec, semantics: ColumnWiseSemantics
) -> KernelRequest:
    widths = tuple(sorted({shard.num_columns for shard in placed.shards}))
    shares = shares_row_state(len(placed.column_ranges), optimizer, semantics)
    return KernelRequest(table, widths, optimizer, placed.kernel, shares)


def _not_executable(key: str, placed: TablePlan) -> list[Finding]:
    findings = []
    if placed.tier is not Tier.HBM:
        problem = f"'{placed.tier}' is not executed yet: tables are held in hbm only"
        findings.append(Finding(f"tables.{key}.tier", problem, "write hbm, and plan again if it does not fit"))
    if placed.cache_bytes > 0:
        problem = f"{placed.cache_bytes}: caches are not executed yet"
        findings.append(Finding(f"tables.{key}.cache_bytes", problem, "write 0"))
    return findings


def _in_file(path: Path, findings: list[Finding] | tuple[Finding, ...]) -> list[Finding]:
    return [Finding(f"{path}: {f.key}", f.problem, f.fix) for f in findings]
