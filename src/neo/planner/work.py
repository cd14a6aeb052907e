"""How much work and memory a table means for a rank, relative to all tables together; without a cost model."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neo.plan.sharding_plan import ShardingType
from neo.planner.problem import Piece, PlacementProblem, TableTask

# The default global batch in training (data.global_batch_size=auto), over which an all-reduce of a replicated
# table's gradients is spread.
TYPICAL_BATCH = 2048
# Above every capacity that hardware.* accepts, and small enough for sums of 64-bit integers: more bytes than this on
# one rank are counted as this many where ranks are compared.
MAX_RANK_BYTES = 2**61


@dataclass(frozen=True)
class Work:
    """Loads of the tables of one problem.

    The load of a part is its share of all elements that are read and sent per sample (a row per id, a pooled vector
    per feature) plus its share of all bytes; whole tables sum to 2.

    Attributes:
        problem: The tables.
        all_lookups: Elements read and sent per sample over all tables.
        all_bytes: Bytes of all tables.
    """

    problem: PlacementProblem
    all_lookups: float
    all_bytes: int

    @classmethod
    def of(cls, problem: PlacementProblem) -> "Work":
        """Sum up the tables of a problem."""
        lookups = sum(_read(task) + _sent(task) for task in problem.tasks)
        return cls(problem, lookups, sum(task.whole_bytes for task in problem.tasks))

    def of_columns(self, task: TableTask, width: int) -> Piece:
        """Return the load and bytes of ``width`` columns of all rows; of the whole table with ``width`` = its dim."""
        num_bytes = task.bytes_of(task.table.num_embeddings, width)
        lookups = (_read(task) + _sent(task)) * width / task.table.embedding_dim
        return Piece(self._load(lookups, num_bytes), num_bytes)

    def of_whole(self, task: TableTask) -> Piece:
        """Return the load and bytes of the whole table."""
        return self.of_columns(task, task.table.embedding_dim)

    def of_rows(self, task: TableTask, width: int, num_ranks: int) -> tuple[float, NDArray[np.int64]]:
        """Return the load that ``width`` columns put on each of the ranks their rows are cut over, and the bytes.

        Returns:
            The load of every rank, and the bytes of each, [num_ranks].
        """
        rows, extra = divmod(task.table.num_embeddings, num_ranks)
        most = task.bytes_of(rows + (extra > 0), width)
        num_bytes = np.full(num_ranks, min(task.bytes_of(rows, width), MAX_RANK_BYTES), dtype=np.int64)
        num_bytes[:extra] = min(most, MAX_RANK_BYTES)
        # Every rank reads its rows only, but sends a partial sum for every sample.
        lookups = (_read(task) / num_ranks + _sent(task)) * width / task.table.embedding_dim
        return self._load(lookups, most), num_bytes

    def per_rank(self, task: TableTask, sharding_type: ShardingType) -> tuple[float, NDArray[np.int64]]:
        """Return the load that a row-wise or data-parallel table puts on every rank, and its bytes, [world_size]."""
        world_size, dim = self.problem.world_size, task.table.embedding_dim
        if sharding_type is not ShardingType.DATA_PARALLEL:
            return self.of_rows(task, dim, world_size)
        reduced = 2 * task.table.num_embeddings * dim / TYPICAL_BATCH
        load = self._load(_read(task) / world_size + reduced, task.whole_bytes)
        return load, np.full(world_size, min(task.whole_bytes, MAX_RANK_BYTES), dtype=np.int64)

    def _load(self, lookups: float, num_bytes: int) -> float:
        return lookups / self.all_lookups + num_bytes / self.all_bytes


def _read(task: TableTask) -> float:
    return task.table.pooling_factor * task.table.embedding_dim


def _sent(task: TableTask) -> float:
    return float(len(task.table.feature_names) * task.table.embedding_dim)
