"""The shards of one table for each sharding type."""

from collections.abc import Sequence

from neo.plan.runs import grid_shards
from neo.plan.sharding_plan import Shard, ShardingType, even_splits, reading_order
from neo.tables.spec import TableSpec


def data_parallel_shards(table: TableSpec, world_size: int) -> tuple[Shard, ...]:
    """Return a copy of the table for every rank."""
    return tuple(Shard(rank, 0, table.num_embeddings, 0, table.embedding_dim) for rank in range(world_size))


def row_wise_shards(table: TableSpec, world_size: int) -> tuple[Shard, ...]:
    """Cut the rows evenly over all ranks; the last ranks have empty shards where there are fewer rows than ranks."""
    rows = even_splits(table.num_embeddings, world_size)
    return tuple(Shard(rank, *bounds, 0, table.embedding_dim) for rank, bounds in enumerate(rows))


def num_column_parts(sharding_type: ShardingType, world_size: int, local_world_size: int) -> int:
    """Return into how many ranges a forced type cuts the columns, where they are enough; 1 if it does not."""
    if sharding_type is ShardingType.GRID:
        return -(-world_size // local_world_size)
    if sharding_type is ShardingType.TABLE_COLUMN_WISE:
        return local_world_size
    return world_size if sharding_type is ShardingType.COLUMN_WISE else 1


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


def node_wise_shards(table: TableSpec, columns: Sequence[tuple[int, int]], nodes: Sequence[range]) -> tuple[Shard, ...]:
    """Lay column ranges on nodes, the rows of each evenly over the ranks of its node.

    Among ranges of one width the nodes ascend. ``nodes`` holds the ranks of the node of each range.
    """
    by_width: dict[int, list[range]] = {}
    for (begin, end), ranks in zip(columns, nodes, strict=True):
        by_width.setdefault(end - begin, []).append(ranks)
    ascending = {width: iter(sorted(of_width, key=lambda r: r.start)) for width, of_width in by_width.items()}
    ordered = [next(ascending[end - begin]) for begin, end in columns]
    return tuple(sorted(grid_shards(ordered, (0, table.num_embeddings), columns), key=reading_order))
