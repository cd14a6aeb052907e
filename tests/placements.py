"""Placements of one table for tests: every sharding type, over any world size."""

from collections.abc import Sequence

from neo.plan.sharding_plan import Shard, ShardingPlan, ShardingType, TablePlan, even_splits
from neo.tables.spec import TableSpec

PLACEMENTS = tuple(ShardingType)
COLUMN_SPLIT = (ShardingType.COLUMN_WISE, ShardingType.TABLE_COLUMN_WISE, ShardingType.GRID)
NESTED = (ShardingType.TABLE_ROW_WISE, ShardingType.TABLE_COLUMN_WISE, ShardingType.GRID)


def two_nodes(world_size: int) -> int:
    """Return the ranks per node that make two nodes of ``world_size`` ranks, the second smaller where it is odd."""
    return (world_size + 1) // 2


def place(
    table: TableSpec,
    kind: ShardingType,
    world_size: int,
    *,
    kernel: str = "reference",
    rank: int = 0,
    local_world_size: int | None = None,
) -> TablePlan:
    """Return the placement of ``table``: on ``rank`` (or its node) if it goes to one, else over all ranks."""
    rows, dim = table.num_embeddings, table.embedding_dim
    multiple = 4 if kernel == "fbgemm" else 1
    local = local_world_size if local_world_size is not None else two_nodes(world_size)
    nodes = [range(first, min(first + local, world_size)) for first in range(0, world_size, local)]
    node = nodes[rank % world_size // local]
    if kind is ShardingType.TABLE_WISE:
        shards = [Shard(rank % world_size, 0, rows, 0, dim)]
    elif kind is ShardingType.ROW_WISE:
        shards = _by_rows(range(world_size), rows, (0, dim))
    elif kind is ShardingType.TABLE_ROW_WISE:
        shards = _by_rows(node, rows, (0, dim))
    elif kind is ShardingType.COLUMN_WISE:
        shards = _by_columns(range(world_size), rows, dim, multiple)
    elif kind is ShardingType.TABLE_COLUMN_WISE:
        shards = _by_columns(node, rows, dim, multiple)
    elif kind is ShardingType.GRID:
        cuts = even_splits(dim, len(nodes), multiple)
        shards = [
            s for ranks, cut in zip(nodes, cuts, strict=True) if cut[0] < cut[1] for s in _by_rows(ranks, rows, cut)
        ]
    else:
        shards = [Shard(r, 0, rows, 0, dim) for r in range(world_size)]
    return TablePlan(kind, tuple(shards), kernel)


def plan_for(
    tables: Sequence[TableSpec],
    kinds: ShardingType | Sequence[ShardingType],
    world_size: int,
    kernel: str = "reference",
) -> ShardingPlan:
    """Return a plan of all ``tables``, each with its own kind or all with the same; keys are the tables' names.

    There are two nodes where any kind is about nodes, else one.
    """
    each = [kinds] * len(tables) if isinstance(kinds, ShardingType) else list(kinds)
    placed = {
        table.name: place(table, kind, world_size, kernel=kernel, rank=index)
        for index, (table, kind) in enumerate(zip(tables, each, strict=True))
    }
    local_world_size = two_nodes(world_size) if set(each) & set(NESTED) else world_size
    return ShardingPlan(world_size, local_world_size, placed)


def _by_rows(ranks: Sequence[int], rows: int, columns: tuple[int, int]) -> list[Shard]:
    return [Shard(r, a, b, *columns) for r, (a, b) in zip(ranks, even_splits(rows, len(ranks)), strict=True)]


def _by_columns(ranks: Sequence[int], rows: int, dim: int, multiple: int) -> list[Shard]:
    cuts = even_splits(dim, len(ranks), multiple)
    return [Shard(r, 0, rows, a, b) for r, (a, b) in zip(ranks, cuts, strict=True) if a < b]
