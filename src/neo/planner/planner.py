"""From tables, machine and wishes to a plan: the one entry that training and ``plan.py`` share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from neo.errors import ConfigError
from neo.hardware.spec import HardwareSpec
from neo.ops.spec import Device
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.fingerprint import plan_fingerprint
from neo.plan.memory import capacity_per_rank
from neo.plan.plan_view import PlanView
from neo.plan.sharding_plan import ColumnWiseSemantics, ShardingPlan, Tier
from neo.planner.capacity import check_capacity, infeasible
from neo.planner.degenerate import degenerate_types
from neo.planner.given_plan import given_plan
from neo.planner.kernels import decide_kernels, dim_multiple, replicas_fallback, requests_of
from neo.planner.overrides import forced_types
from neo.planner.placement import place
from neo.planner.problem import DoesNotFitError, PlacementProblem, TableTask
from neo.planner.semantics import NO_SUCH_TABLE, per_shard_tables, rowwise_on_columns, shares_row_state
from neo.planner.spec import AUTO, ShardingMode, ShardingSpec
from neo.tables.spec import TableSpec

_DEFAULT_PARTITIONER = "greedy"


@dataclass(frozen=True)
class PlanResult:
    """A plan and what must be said about it.

    Attributes:
        plan: The plan, tables in alphabetical order of their keys; every kernel is decided, and the column-wise
            semantics where a table depends on them.
        fallbacks: Kernels that were replaced and wishes that had no effect, and why.
        column_wise_semantics: What runs: ``per_shard`` if a row-wise optimizer meets a table split by columns.
        per_shard: Keys of those tables.
        hardware: The machine, scaled to the world.
        fingerprint: Of the plan and its tables.
        view: The same as facts for ``neo.plan.report.plan_report``.
    """

    plan: ShardingPlan
    fallbacks: tuple[str, ...]
    column_wise_semantics: ColumnWiseSemantics
    per_shard: tuple[str, ...]
    hardware: HardwareSpec
    fingerprint: str
    view: PlanView


def make_plan(
    tables: Mapping[str, TableSpec],
    *,
    sharding: ShardingSpec,
    hardware: HardwareSpec,
    world_size: int,
    optimizer: SparseOptimizerSpec,
    ops_backend: str,
    device: Device,
    table_optimizers: Mapping[str, SparseOptimizerSpec] | None = None,
) -> PlanResult:
    """Decide where every table goes.

    The same input gives the same plan, whatever the order of ``tables``.

    Args:
        tables: The tables by plan key.
        sharding: What is wished.
        hardware: The machine; it is scaled to ``world_size``.
        world_size: Ranks.
        optimizer: The sparse optimizer.
        ops_backend: ``auto`` or the ops backend asked for.
        device: Where the kernels will run.
        table_optimizers: Sparse optimizers of tables that have one of their own, by plan key.

    Raises:
        ConfigError: A wish cannot be met, or a given plan is unfit; carries every finding.
        InfeasiblePlanError: The tables do not fit the machine.
    """
    machine = hardware.scaled_to(world_size)
    own = {} if table_optimizers is None else table_optimizers
    optimizers = {key: own.get(key, optimizer) for key in tables}
    if sharding.type is ShardingMode.FILE:
        plan, fallbacks = given_plan(
            Path(sharding.path or ""),
            tables,
            world_size=world_size,
            local_world_size=machine.local_world_size,
            optimizers=optimizers,
            semantics=sharding.column_wise_semantics,
            ops_backend=ops_backend,
            device=device,
        )
    else:
        problem, fallbacks = _problem(tables, sharding, machine, optimizers, ops_backend, device)
        plan = _search(problem)
        replicated = [key for key, placed in plan.tables.items() if placed.is_replicated]
        fallbacks += replicas_fallback(replicated, ops_backend)
        fallbacks += degenerate_types(plan, {task.key: task.forced for task in problem.tasks})
        if rowwise_on_columns(plan, optimizers):
            plan = replace(plan, column_wise_semantics=sharding.semantics)
        elif sharding.semantics is ColumnWiseSemantics.PER_SHARD:
            fallbacks += (f"column_wise_semantics: per_shard has no effect: {NO_SUCH_TABLE}",)
    semantics = plan.column_wise_semantics or ColumnWiseSemantics.EXACT
    per_shard = per_shard_tables(plan, optimizers, semantics)
    check_capacity(plan, optimizers=optimizers, hardware=machine)
    return PlanResult(
        plan=plan,
        fallbacks=fallbacks,
        column_wise_semantics=ColumnWiseSemantics.PER_SHARD if per_shard else ColumnWiseSemantics.EXACT,
        per_shard=per_shard,
        hardware=machine,
        fingerprint=plan_fingerprint(plan, tables),
        view=PlanView(plan, tables, optimizers, capacity_per_rank(machine)[Tier.HBM], per_shard, fallbacks),
    )


def _problem(
    tables: Mapping[str, TableSpec],
    sharding: ShardingSpec,
    machine: HardwareSpec,
    optimizers: Mapping[str, SparseOptimizerSpec],
    ops_backend: str,
    device: Device,
) -> tuple[PlacementProblem, tuple[str, ...]]:
    """Gather what a search needs: forced types and kernels of every table."""
    forced, findings = forced_types(tables, sharding)
    semantics = sharding.semantics
    requests = requests_of(
        tables,
        forced,
        ops_backend=ops_backend,
        device=device,
        optimizers=optimizers,
        semantics=semantics,
        world_size=machine.world_size,
        local_world_size=machine.local_world_size,
    )
    choices, refused = decide_kernels(requests, device=device)
    if findings or refused:
        raise ConfigError([*findings, *refused])
    tasks = (
        TableTask(
            key,
            tables[key],
            kernel,
            dim_multiple(kernel, device),
            forced[key],
            optimizers[key],
            may_split_columns=not shares_row_state(2, optimizers[key], semantics),
        )
        for key, kernel in choices.kernels.items()
    )
    problem = PlacementProblem(
        tasks=tuple(tasks),
        world_size=machine.world_size,
        local_world_size=machine.local_world_size,
        capacity_bytes=capacity_per_rank(machine)[Tier.HBM],
        partitioner=_DEFAULT_PARTITIONER if sharding.partitioner == AUTO else sharding.partitioner,
    )
    return problem, choices.fallbacks


def _search(problem: PlacementProblem) -> ShardingPlan:
    try:
        placed = place(problem)
    except DoesNotFitError as error:
        forced = {task.key: task.forced for task in problem.tasks}
        raise infeasible(error, forced[error.key], problem, _remedy(problem)) from error
    return ShardingPlan(problem.world_size, problem.local_world_size, placed)


def _remedy(problem: PlacementProblem) -> str:
    """Return the advice to leave every type open, if that was planned and fits."""
    if all(task.forced is None for task in problem.tasks):
        return ""
    opened = replace(problem, tasks=tuple(replace(task, forced=None) for task in problem.tasks))
    try:
        place(opened)
    except DoesNotFitError:
        return ""
    return "sharding=auto without overrides was planned and fits"
