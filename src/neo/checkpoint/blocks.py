"""The parts of the tables that a rank writes and reads, each a rectangle of a logical tensor, free of the plan.

A table has a logical tensor for its weights, ``KEY/weight`` ``[num_embeddings, embedding_dim]``, and one for each
optimizer state: of the same shape, or ``[num_embeddings]`` where it is kept per row. Column shards that keep row-wise
state of their own (``column_wise_semantics=per_shard``) each have a logical tensor, ``KEY/STATE/columns_0_16``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neo.checkpoint.manifest import TableEntry
from neo.data.batch import split_evenly
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection

_BLOCK_BYTES = 64 << 20  # A block is copied and read as a whole.


@dataclass(frozen=True)
class Block:
    """A rectangle of a logical tensor, and this rank's memory for it.

    Attributes:
        name: Of the logical tensor.
        size: Its shape.
        offsets: Where the rectangle begins in it.
        tensor: The rectangle; a view of the table's storage, or memory to be read into.
    """

    name: str
    size: tuple[int, ...]
    offsets: tuple[int, ...]
    tensor: Tensor


@dataclass(frozen=True)
class Merge:
    """A row-wise state that becomes the mean of others', weighted by their columns.

    Attributes:
        into: ``[rows]``.
        parts: ``[rows]`` each, with its share of the columns; the shares sum to 1.
    """

    into: Tensor
    parts: tuple[tuple[Tensor, float], ...]

    def run(self) -> None:
        """Write the mean."""
        total = sum(part.double() * share for part, share in self.parts)
        assert isinstance(total, Tensor)
        self.into.copy_(total)


def blocks_to_write(
    collection: EmbeddingBagCollection, entries: Mapping[str, TableEntry], *, rank: int, world_size: int
) -> Iterator[Block]:
    """Yield what this rank writes; over all ranks every logical tensor is tiled exactly.

    Args:
        collection: The tables.
        entries: What the checkpoint says of each, by table name.
        rank: This rank.
        world_size: Ranks.
    """
    for index, table in enumerate(collection.tables):
        entry, engine = entries[table.name], collection.engine
        begins, _ = engine.column_shards(index)
        for shard, weight, states in engine.local_shards(index):
            rows = (shard.row_begin, shard.row_end)
            if engine.is_replicated(index):  # every rank holds it and writes its share of the rows
                rows = split_evenly(table.num_embeddings, rank, world_size)
            cut = slice(rows[0] - shard.row_begin, rows[1] - shard.row_begin)
            yield from _rectangle(entry, "weight", rows[0], shard.column_begin, weight[cut])
            for name, state in states.items():
                if not entry.states[name]:
                    yield from _rectangle(entry, name, rows[0], shard.column_begin, state[cut])
                elif len(entry.column_ranges) > 1:
                    columns = (shard.column_begin, shard.column_end)
                    yield from _of_rows(entry, _name_of_part(entry, name, columns), rows[0], state[cut])
                elif engine.is_replicated(index) or shard.column_begin == begins[0]:
                    yield from _of_rows(entry, f"{entry.key}/{name}", rows[0], state[cut])


def blocks_to_read(
    collection: EmbeddingBagCollection,
    saved: Mapping[str, TableEntry],
    wanted: Mapping[str, TableEntry],
    *,
    weights_only: bool,
) -> tuple[list[Block], list[Merge]]:
    """Return what this rank reads, and what has to be done afterwards.

    Args:
        collection: The tables, with the storage that is read into.
        saved: What the checkpoint says of each, by table name.
        wanted: The same of the model.
        weights_only: Leave the optimizer states as they are.
    """
    blocks: list[Block] = []
    merges: list[Merge] = []
    for index, table in enumerate(collection.tables):
        entry = saved[table.name]
        for shard, weight, states in collection.engine.local_shards(index):
            blocks += _rectangle(entry, "weight", shard.row_begin, shard.column_begin, weight)
            for name, state in {} if weights_only else states.items():
                if not entry.states[name]:
                    blocks += _rectangle(entry, name, shard.row_begin, shard.column_begin, state)
                    continue
                whole = len(wanted[table.name].column_ranges) == 1
                columns = (0, table.embedding_dim) if whole else (shard.column_begin, shard.column_end)
                parts = _parts(entry, name, columns, state)
                for part_name, part, _ in parts:
                    blocks += _of_rows(entry, part_name, shard.row_begin, part)
                if len(parts) > 1:
                    merges.append(Merge(state, tuple((part, share) for _, part, share in parts)))
    return blocks, merges


def _parts(entry: TableEntry, name: str, columns: tuple[int, int], state: Tensor) -> list[tuple[str, Tensor, float]]:
    """Return from which logical tensors a row-wise state comes, the memory for each, and its share."""
    found = []
    for begin, end in entry.column_ranges:
        common = min(end, columns[1]) - max(begin, columns[0])
        if common > 0:
            found.append((_name_of_part(entry, name, (begin, end)), common / (columns[1] - columns[0])))
    if len(found) == 1:
        return [(found[0][0], state, 1.0)]
    return [(part, torch.empty_like(state), share) for part, share in found]


def _name_of_part(entry: TableEntry, state: str, columns: tuple[int, int]) -> str:
    if len(entry.column_ranges) == 1:
        return f"{entry.key}/{state}"
    return f"{entry.key}/{state}/columns_{columns[0]}_{columns[1]}"


def _rectangle(entry: TableEntry, name: str, row: int, column: int, tensor: Tensor) -> Iterator[Block]:
    size = (entry.num_embeddings, entry.embedding_dim)
    for begin, part in _row_blocks(tensor):
        yield Block(f"{entry.key}/{name}", size, (row + begin, column), part)


def _of_rows(entry: TableEntry, name: str, row: int, tensor: Tensor) -> Iterator[Block]:
    for begin, part in _row_blocks(tensor):
        yield Block(name, (entry.num_embeddings,), (row + begin,), part)


def _row_blocks(tensor: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Cut along the rows into blocks of bounded size; an empty tensor gives none."""
    if tensor.numel() == 0:
        return
    row_bytes = max(1, tensor[0].numel() * tensor.element_size())
    rows = max(1, _BLOCK_BYTES // row_bytes)
    for begin in range(0, tensor.shape[0], rows):
        yield begin, tensor[begin : begin + rows]


def by_table(entries: Sequence[TableEntry], keys: Mapping[str, str]) -> dict[str, TableEntry]:
    """Return the entries of one collection by table name; ``keys`` are the plan keys of its tables."""
    of_key = {entry.key: entry for entry in entries}
    return {name: of_key[key] for name, key in keys.items()}
