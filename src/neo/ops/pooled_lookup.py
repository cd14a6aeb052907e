"""The interface of a fused embedding operator: sum-pooled lookup of many local tables, update inside the backward.

Shapes: T local tables, S slots (a slot is one feature reading one local table), B bags per slot, N ids.
Mean pooling is the caller's business (a factor per bag), so that every placement gets it right the same way.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neo.optim.spec import SparseOptimizerSpec


@dataclass(frozen=True)
class LocalTable:
    """The part of one table that a rank holds: ``num_rows x num_columns``."""

    name: str
    num_rows: int
    num_columns: int


class PooledLookup(ABC):
    """Several local tables of one kind, looked up and updated together.

    Args:
        tables: The T local tables.
        slots: ``[S]`` which table each slot reads.
        optimizer: The optimizer that the backward applies.
        device: Where the tables live.
    """

    def __init__(
        self,
        tables: Sequence[LocalTable],
        *,
        slots: Sequence[int],
        optimizer: SparseOptimizerSpec,
        device: torch.device,
    ) -> None:
        self.tables = tuple(tables)
        self.slots = tuple(slots)
        self.optimizer = optimizer
        self.device = device

    @property
    def output_dim(self) -> int:
        """Width of the output: the columns of all slots."""
        return sum(self.tables[table].num_columns for table in self.slots)

    @abstractmethod
    def __call__(self, values: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Look up and sum every bag.

        Args:
            values: ``[N]`` int64 local rows, slot by slot, bag by bag.
            offsets: ``[S * B + 1]`` int64 where each bag begins in ``values``.
            weights: ``[N]`` float32 factors of the ids, or None. If it requires a gradient it gets one.

        Returns:
            ``[B, output_dim]`` float32; its backward applies one optimizer step with the duplicates merged.
        """

    @abstractmethod
    def set_learning_rate(self, lr: float) -> None:
        """Use ``lr`` from the next forward on."""

    @abstractmethod
    def weights(self) -> list[Tensor]:
        """Return the weights ``[rows, columns]`` of each local table, as views that may be written."""

    @abstractmethod
    def states(self) -> list[dict[str, Tensor]]:
        """Return the optimizer states of each local table by name, as views that may be written."""
