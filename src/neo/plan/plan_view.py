"""What a plan's report shows, as facts."""

from collections.abc import Mapping
from dataclasses import dataclass

from neo.optim.spec import SparseOptimizerSpec
from neo.plan.sharding_plan import ShardingPlan
from neo.tables.spec import TableSpec


@dataclass(frozen=True)
class PlanView:
    """What the report shows.

    Attributes:
        plan: The plan.
        tables: The tables, by plan key.
        optimizers: The sparse optimizer of each table, by plan key: it decides the bytes of state.
        capacity_bytes: HBM of one rank; None leaves the column out.
        per_shard: Keys of tables whose column shards keep their own row-wise state.
        fallbacks: Kernels that were replaced and wishes that had no effect, and why.
        exchange: What is to be said about the exchange of pooled vectors; empty for nothing.
    """

    plan: ShardingPlan
    tables: Mapping[str, TableSpec]
    optimizers: Mapping[str, SparseOptimizerSpec]
    capacity_bytes: int | None = None
    per_shard: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    exchange: str = ""
