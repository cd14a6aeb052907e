"""The shards of one table for each sharding type."""

from collections.abc import Sequence

from neo.plan.sharding_plan import Shard, even_splits
from neo.tables.spec import TableSpec


def data_parallel_shards(table: TableSpec, world_size: int) -> tuple[Shard, ...]:
    """Return a copy of the table for every rank."""
    return tuple(Shard(rank, 0, table.num_embeddings, 0, table.embedding_dim) for rank in range(world_size))


def row_wise_shards(table: TableSpec, world_size: int) -> tuple[Shard, ...]:
    """Cut the rows evenly over all ranks; the last ranks have empty shards where there are fewer rows than ranks."""
    rows = even_splits(table.num_embeddings, world_size)
    return tuple(Shard(rank, *bounds, 0, table.embedding_dim) for rank, bounds in enumerate(rows))


def column_ranges(table: TableSpec, num_parts: int, dim_multiple: int) -> list[tuple[int, int]]:
    """Cut the columns into at most ``num_parts`` even ranges whose widths the kernel takes; the widest come first."""
    ranges = even_splits(table.embedding_dim, num_parts, dim_multiple)
    return [bounds for bounds in ranges if bounds[0] < bounds[1]]


def column_wise_shards(table: TableSpec, columns: Sequence[tuple[int, int]], ranks: Sequence[int]) -> tuple[Shard, ...]:
    """Lay column ranges on ``ranks``; among ranges of one width the ranks ascend. A whole table is one range."""
    by_width: dict[int, list[int]] = {}
    for (begin, end), rank in zip(columns, ranks, strict=True):
        by_width.setdefault(end - begin, []).append(rank)
    ascending = {width: iter(sorted(of_width)) for width, of_width in by_width.items()}
    return tuple(Shard(next(ascending[end - begin]), 0, table.num_embeddings, begin, end) for begin, end in columns)
