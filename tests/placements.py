"""Placements of one table for tests: every sharding type, over any world size."""

from collections.abc import Sequence

from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType, TablePlan, even_splits
from neo.tables.spec import TableSpec

PLACEMENTS = tuple(ShardingType)


def place(
    table: TableSpec, kind: ShardingType, world_size: int, *, kernel: str = "reference", rank: int = 0
) -> TablePlan:
    """Return the placement of ``table``: on ``rank`` if table-wise, else over all ranks."""
    rows, dim = table.num_embeddings, table.embedding_dim
    if kind is ShardingType.TABLE_WISE:
        shards = [Shard(rank % world_size, 0, rows, 0, dim)]
    elif kind is ShardingType.ROW_WISE:
        shards = [Shard(r, a, b, 0, dim) for r, (a, b) in enumerate(even_splits(rows, world_size))]
    elif kind is ShardingType.COLUMN_WISE:
        cuts = even_splits(dim, world_size, 4 if kernel == "fbgemm" else 1)
        shards = [Shard(r, 0, rows, a, b) for r, (a, b) in enumerate(cuts) if a < b]
    else:
        shards = [Shard(r, 0, rows, 0, dim) for r in range(world_size)]
    return TablePlan(kind, tuple(shards), kernel)


def plan_for(
    tables: Sequence[TableSpec],
    kinds: ShardingType | Sequence[ShardingType],
    world_size: int,
    kernel: str = "reference",
) -> ShardingPlan:
    """Return a plan of all ``tables``, each with its own kind or all with the same; keys are the tables' names."""
    each = [kinds] * len(tables) if isinstance(kinds, ShardingType) else list(kinds)
    placed = {
        table.name: place(table, kind, world_size, kernel=kernel, rank=index)
        for index, (table, kind) in enumerate(zip(tables, each, strict=True))
    }
    return ShardingPlan(world_size, world_size, placed)
