"""What a placement is decided from, and what a way of placing must give back.

The interface between ``make_plan`` and any search: a ``PlacementProblem`` goes in, a ``TablePlan`` per table comes out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from neo.errors import NeoError
from neo.hardware.topology import ranks_of_node
from neo.optim.spec import SparseOptimizerSpec
from neo.plan.memory import rectangle_bytes
from neo.plan.sharding_plan import ShardingType
from neo.tables.spec import TableSpec


@dataclass(frozen=True)
class TableTask:
    """One table to place.

    Attributes:
        key: Its key in the plan.
        table: The table.
        kernel: The ops backend that will hold it.
        dim_multiple: The kernel takes column shards in multiples of this.
        forced: The sharding type asked for; None leaves it open.
        optimizer: Its sparse optimizer.
        may_split_columns: Whether it may be split by columns if its type is open: not where a row-wise optimizer would
            then update it unfused, which costs more than a split by rows.
    """

    key: str
    table: TableSpec
    kernel: str
    dim_multiple: int
    forced: ShardingType | None
    optimizer: SparseOptimizerSpec
    may_split_columns: bool = True

    def bytes_of(self, num_rows: int, num_columns: int) -> int:
        """Return the bytes of weights and optimizer state of a shard of this shape."""
        return rectangle_bytes(num_rows, num_columns, self.optimizer).total

    @property
    def whole_bytes(self) -> int:
        """Bytes of weights and optimizer state of the whole table."""
        return self.bytes_of(self.table.num_embeddings, self.table.embedding_dim)


@dataclass(frozen=True)
class PlacementProblem:
    """All tables to place, on one machine.

    Attributes:
        tasks: The tables in alphabetical order of their keys, so that the order in the configuration does not matter.
        world_size: Ranks.
        local_world_size: Ranks of a full node; the last node may have fewer.
        capacity_bytes: HBM of one rank.
        partitioner: Name in ``PARTITIONERS``.
    """

    tasks: tuple[TableTask, ...]
    world_size: int
    local_world_size: int
    capacity_bytes: int
    partitioner: str

    @property
    def num_nodes(self) -> int:
        """Nodes, the last one included."""
        return -(-self.world_size // self.local_world_size)

    @property
    def is_nested(self) -> bool:
        """Whether there are several nodes, of several ranks: where it matters that ranks share one."""
        return self.num_nodes > 1 and self.local_world_size > 1

    def ranks_of(self, node: int) -> range:
        """Return the ranks of a node."""
        return ranks_of_node(node, self.world_size, self.local_world_size)


@dataclass(frozen=True)
class Piece:
    """A part of a table that goes to one rank as a whole.

    Attributes:
        load: Its share of the work; the unit is the same for all pieces.
        num_bytes: Its memory.
    """

    load: float
    num_bytes: int


@dataclass(frozen=True)
class Item:
    """A table as a partitioner sees it: pieces that must lie on different ranks.

    Attributes:
        key: The table's key in the plan.
        pieces: At most as many as there are ranks.
    """

    key: str
    pieces: tuple[Piece, ...]


class DoesNotFitError(NeoError):
    """A piece fits on no rank.

    Attributes:
        key: The table.
        piece: The piece.
        rank: The rank with most bytes left.
        free_bytes: What it has left.
    """

    def __init__(self, key: str, piece: Piece, rank: int, free_bytes: int) -> None:
        super().__init__(f"'{key}' needs {piece.num_bytes} B; rank {rank} has {free_bytes} B left")
        self.key = key
        self.piece = piece
        self.rank = rank
        self.free_bytes = free_bytes


class Partitioner(Protocol):
    """Spreads items over ranks."""

    def __call__(
        self, items: Sequence[Item], *, load: NDArray[np.float64], free_bytes: NDArray[np.int64]
    ) -> Mapping[str, tuple[int, ...]]:
        """Return the rank of every piece of every item.

        Args:
            items: What to spread.
            load: Load that each rank carries already, [world_size].
            free_bytes: Memory that each rank has left, [world_size].

        Raises:
            DoesNotFitError: A piece fits on no rank.
        """
