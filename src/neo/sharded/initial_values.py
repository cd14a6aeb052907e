"""Initial weights that depend on the seed, the table and the row alone, made block by block.

Neither the rank, nor the plan, nor the world size, nor any global random state enters, so a table is the same to
the bit however it is sharded, and no rank ever holds more than one block besides its shard.
"""

import hashlib
import math

import numpy as np
import torch
from torch import Tensor

from neo.plan.sharding_plan import Shard
from neo.tables.spec import TableSpec

# One block is at most this many values (4 MiB of float32).
_BLOCK_VALUES = 1 << 20


def fill_initial_values(weight: Tensor, table: TableSpec, shard: Shard, *, key: str, seed: int) -> None:
    """Fill the shard ``weight`` ``[rows, columns]`` uniformly in ``[-1/sqrt(n), 1/sqrt(n))``, n the table's rows.

    Args:
        weight: The shard's storage, written in place.
        table: The whole table.
        shard: Which part of it.
        key: The table's plan key; two tables of the same name in two modules differ.
        seed: The run's seed.
    """
    rows_per_block = max(1, _BLOCK_VALUES // table.embedding_dim)
    digest = hashlib.sha256(f"{seed}/{key}".encode()).digest()
    base = int.from_bytes(digest[:8], "little")
    bound = 1.0 / math.sqrt(table.num_embeddings)
    for block in range(shard.row_begin // rows_per_block, -(-shard.row_end // rows_per_block)):
        first = block * rows_per_block
        rows = min(rows_per_block, table.num_embeddings - first)
        generator = np.random.Generator(np.random.Philox(key=[base, block]))
        values = generator.random((rows, table.embedding_dim), dtype=np.float32)
        begin, end = max(first, shard.row_begin), min(first + rows, shard.row_end)
        part = values[begin - first : end - first, shard.column_begin : shard.column_end]
        scaled = torch.from_numpy(part).mul(2 * bound).sub_(bound)
        weight[begin - shard.row_begin : end - shard.row_begin].copy_(scaled)
