"""Whether a plan fits the memory of the machine, and what to say if it does not."""

from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Shortage:
    """What a plan needs of one tier, and what the machine has.

    Attributes:
        tier: The memory that is too small.
        table: Key of the table that finds no place, or of the largest one on the fullest rank.
        needed_on_one_rank: Bytes that one rank would have to hold.
        capacity_per_rank: Bytes that it can.
        all_tables: Bytes of all tables with optimizer state; None where a given plan was only compared rank by rank.
        all_ranks: Bytes of the tier on all ranks together.
    """

    tier: Tier
    table: str
    needed_on_one_rank: int
    capacity_per_rank: int
    all_tables: int | None
    all_ranks: int


class ShortOfMemoryError(InfeasiblePlanError):
    """No placement fits the memory of the machine; ``shortage`` holds the numbers."""

    def __init__(self, message: str, shortage: Shortage) -> None:
        super().__init__(message)
        self.shortage = shortage


def check_capacity(
    plan: ShardingPlan, *, optimizers: Mapping[str, SparseOptimizerSpec], hardware: HardwareSpec
) -> None:
    """Compare the bytes of each rank and tier with the machine; ``optimizers`` by plan key.

    Raises:
        InfeasiblePlanError: A rank holds more than it can; names the largest table there.
    """
    capacity = capacity_per_rank(hardware)
    ranks = rank_bytes(plan, optimizers)
    for tier in Tier:
        fullest = max(range(plan.world_size), key=lambda rank: (ranks[rank][tier].total, -rank))
        needed = ranks[fullest][tier].total
        if needed <= capacity[tier]:
            continue
        key, size = _largest_table(plan, fullest, tier, optimizers)
        lines = (
            f"the plan does not fit: rank {fullest} is to hold {_exact(needed)} of {tier}, but has "
            f"{_exact(capacity[tier])}.",
            f"Its largest table is '{key}' ({plan.tables[key].sharding_type}): {_exact(size)} of it.",
            f"Binding constraint: {_CONSTRAINT[tier]}.",
        )
        total = capacity[tier] * plan.world_size
        raise ShortOfMemoryError("\n  ".join(lines), Shortage(tier, key, needed, capacity[tier], None, total))


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
    smallest = sum(task.whole_bytes for task in problem.tasks)
    total = capacity * problem.world_size
    proven = needed > capacity or smallest > total
    together = "1 rank has" if problem.world_size == 1 else f"{problem.world_size} ranks have"
    lines = [
        f"{'no plan fits' if proven else 'no plan was found'}: table '{error.key}' finds no place {how}.",
        f"It needs {_exact(needed)} of hbm on one rank; {_left(error, capacity)}.",
        f"All tables once, with optimizer state, are {_exact(smallest)}; {together} {_exact(total)}.",
        f"Binding constraint: {_CONSTRAINT[Tier.HBM]}.",
    ]
    lines += [f"{remedy}."] if remedy else []
    return ShortOfMemoryError("\n  ".join(lines), Shortage(Tier.HBM, error.key, needed, capacity, smallest, total))


def _left(error: DoesNotFitError, capacity: int) -> str:
    if capacity == 0:
        return "a rank has none (the tier is switched off)"
    if error.free_bytes == capacity:
        return f"an empty rank has {_exact(capacity)}"
    return f"the best rank ({error.rank}) has {_exact(error.free_bytes)} left of {_exact(capacity)}"


def _largest_table(
    plan: ShardingPlan, rank: int, tier: Tier, optimizers: Mapping[str, SparseOptimizerSpec]
) -> tuple[str, int]:
    sizes = {
        key: sum(shard_bytes(shard, optimizers[key]).total for shard in placed.shards if shard.rank == rank)
        for key, placed in plan.tables.items()
        if placed.tier is tier
    }
    key = max(sorted(sizes), key=lambda key: sizes[key])
    return key, sizes[key]


def _exact(num_bytes: int) -> str:
    return f"{num_bytes:,} B" + (f" ({format_bytes(num_bytes)})" if num_bytes >= 1024 else "")
