"""Whether a plan fits the memory of the machine, and what to say if it does not."""

from neo.errors import InfeasiblePlanError
from neo.hardware.spec import HardwareSpec
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.memory import capacity_per_rank, rank_bytes, shard_bytes
from neo.plan.sharding_plan import ShardingPlan, ShardingType, Tier
from neo.planner.problem import DoesNotFitError, PlacementProblem
from neo.units import format_bytes

_CONSTRAINT = {
    Tier.HBM: "hardware.accelerator.hbm.capacity",
    Tier.DDR: "hardware.node.ddr.capacity",
    Tier.SSD: "hardware.node.ssd.capacity",
}


def check_capacity(plan: ShardingPlan, *, optimizer: SparseOptimizerSpec, hardware: HardwareSpec) -> None:
    """Compare the bytes of each rank and tier with the machine.

    Raises:
        InfeasiblePlanError: A rank holds more than it can; names the largest table there.
    """
    capacity = capacity_per_rank(hardware)
    ranks = rank_bytes(plan, optimizer)
    for tier in Tier:
        fullest = max(range(plan.world_size), key=lambda rank: (ranks[rank][tier].total, -rank))
        needed = ranks[fullest][tier].total
        if needed <= capacity[tier]:
            continue
        key, size = _largest_table(plan, fullest, tier, optimizer)
        problem = (
            f"rank {fullest} is to hold {_exact(needed)} of {tier}, {_exact(size)} of it for its largest table '{key}' "
            f"({plan.tables[key].sharding_type}), but has {_exact(capacity[tier])}"
        )
        raise InfeasiblePlanError(f"the plan does not fit: {problem}; binding constraint: {_CONSTRAINT[tier]}")


def infeasible(
    error: DoesNotFitError, sharding_type: ShardingType | None, problem: PlacementProblem, remedy: str = ""
) -> InfeasiblePlanError:
    """Return the error for a search that found no place for a table.

    Args:
        error: Which piece of which table, and what the best rank has left.
        sharding_type: The type forced on the table; None if the planner was free to choose.
        problem: What was to be placed.
        remedy: A change that was itself planned and fits; empty if none was found.
    """
    needed, capacity = error.piece.num_bytes, problem.capacity_bytes
    how = "however it is split" if sharding_type is None else f"with the forced type {sharding_type}"
    smallest = sum(problem.bytes_of(task.table.num_embeddings, task.table.embedding_dim) for task in problem.tasks)
    proven = needed > capacity or smallest > capacity * problem.world_size
    off = " (the tier is switched off)" if capacity == 0 else ""
    lines = (
        f"{'no plan fits' if proven else 'no plan was found'}: table '{error.key}' finds no place {how}",
        f"it needs {_exact(needed)} of hbm on one rank, and the best rank ({error.rank}) has "
        f"{_exact(error.free_bytes)} left of {_exact(capacity)}{off}",
        f"binding constraint: {_CONSTRAINT[Tier.HBM]}",
        f"all tables once with optimizer state are {_exact(smallest)}; the hbm of {problem.world_size} "
        f"rank{'' if problem.world_size == 1 else 's'} is {_exact(capacity * problem.world_size)}",
    )
    return InfeasiblePlanError("; ".join(lines) + (f"; {remedy}" if remedy else ""))


def _largest_table(plan: ShardingPlan, rank: int, tier: Tier, optimizer: SparseOptimizerSpec) -> tuple[str, int]:
    sizes = {
        key: sum(shard_bytes(shard, optimizer).total for shard in placed.shards if shard.rank == rank)
        for key, placed in plan.tables.items()
        if placed.tier is tier
    }
    key = max(sorted(sizes), key=lambda key: sizes[key])
    return key, sizes[key]


def _exact(num_bytes: int) -> str:
    return f"{num_bytes:,} B ({format_bytes(num_bytes)})"
