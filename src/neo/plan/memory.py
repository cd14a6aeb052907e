"""How many bytes a plan puts on each rank, tier by tier: weights and optimizer state, exactly as allocated."""

from collections.abc import Mapping
from dataclasses import dataclass

from neo.hardware.spec import HardwareSpec
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import Shard, ShardingPlan, TablePlan, Tier


@dataclass(frozen=True)
class MemoryBytes:
    """Bytes of one shard, table, or tier of a rank.

    Attributes:
        weights: Of embedding weights.
        optimizer: Of sparse optimizer state.
    """

    weights: int = 0
    optimizer: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.weights + self.optimizer

    def __add__(self, other: "MemoryBytes") -> "MemoryBytes":
        return MemoryBytes(self.weights + other.weights, self.optimizer + other.optimizer)


def rectangle_bytes(num_rows: int, num_columns: int, optimizer: SparseOptimizerSpec) -> MemoryBytes:
    """Return the bytes of a shard of this shape."""
    weights = num_rows * num_columns * optimizer.weights_dtype.num_bytes
    return MemoryBytes(weights, optimizer.state_bytes(num_rows, num_columns))


def shard_bytes(shard: Shard, optimizer: SparseOptimizerSpec) -> MemoryBytes:
    """Return the bytes of one shard."""
    return rectangle_bytes(shard.num_rows, shard.num_columns, optimizer)


def table_bytes(table_plan: TablePlan, optimizer: SparseOptimizerSpec) -> MemoryBytes:
    """Return the bytes of one table over all ranks together (of a data-parallel table, every copy)."""
    total = MemoryBytes()
    for shard in table_plan.shards:
        total += shard_bytes(shard, optimizer)
    return total


def rank_bytes(
    plan: ShardingPlan, optimizers: Mapping[str, SparseOptimizerSpec]
) -> tuple[Mapping[Tier, MemoryBytes], ...]:
    """Return, for each rank, the bytes in each tier.

    Args:
        plan: The plan.
        optimizers: The sparse optimizer of each table, by plan key.
    """
    ranks = [{tier: MemoryBytes() for tier in Tier} for _ in range(plan.world_size)]
    for key, table_plan in plan.tables.items():
        for shard in table_plan.shards:
            ranks[shard.rank][table_plan.tier] += shard_bytes(shard, optimizers[key])
    return tuple(ranks)


def capacity_per_rank(hardware: HardwareSpec) -> Mapping[Tier, int]:
    """Return the bytes of each tier that one rank may fill: its own HBM, its share of the node's DDR and SSD."""
    per_node = hardware.local_world_size
    return {
        Tier.HBM: hardware.accelerator.hbm.usable_bytes,
        Tier.DDR: hardware.ddr.usable_bytes // per_node,
        Tier.SSD: hardware.ssd.usable_bytes // per_node,
    }
