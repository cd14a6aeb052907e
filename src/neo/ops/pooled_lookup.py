"""The interface of a fused embedding operator: sum-pooled lookup of many local tables, update inside the backward.

Shapes: T local tables, S slots (a slot is one feature reading one local table), B bags per slot, N ids, U touched rows
of one table, D columns of one table. Mean pooling is the caller's business (a factor per bag), so that every placement
gets it right the same way; a sequence output is a lookup whose bags hold one id each.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neo.errors import UnsupportedError
from neo.optim.spec import SparseOptimizerSpec


@dataclass(frozen=True)
class LocalTable:
    """The part of one table that a rank holds.

    Attributes:
        name: The table's name, for messages.
        num_rows: Rows of the part.
        num_columns: Columns of the part.
        first_row: Where the part begins in the whole table.
        first_column: Where it begins in the columns.
        key: The table's plan key. Random rounding depends on (seed, key, row, column, step) alone, rows and columns
            counted in the whole table, so that it is the same under every plan.
    """

    name: str
    num_rows: int
    num_columns: int
    first_row: int = 0
    first_column: int = 0
    key: str = ""


@dataclass(frozen=True)
class MergedGradient:
    """The gradient of the touched rows of one local table, duplicates summed.

    Attributes:
        rows: ``[U]`` int64 local rows, ascending, each once. A row that was read is touched, also with gradient 0.
        gradient: ``[U, D]`` float32.
    """

    rows: Tensor
    gradient: Tensor


class PooledLookup(ABC):
    """Several local tables of one kind, looked up and updated together.

    Args:
        tables: The T local tables.
        slots: ``[S]`` which table each slot reads.
        optimizer: The optimizer that the backward applies.
        device: Where the tables live.
        seed: Decides random rounding.
    """

    def __init__(
        self,
        tables: Sequence[LocalTable],
        *,
        slots: Sequence[int],
        optimizer: SparseOptimizerSpec,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        self.tables = tuple(tables)
        self.slots = tuple(slots)
        self.optimizer = optimizer
        self.device = device
        self.seed = seed
        self.num_steps = 0  # taken so far; bias correction and random rounding depend on it

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

    # The unfused way, for backends whose capability says ``shares_row_state``: the caller runs the same step in parts,
    # and exchanges with other ranks between them.

    def pool(self, values: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Return what ``__call__`` returns, without a backward."""
        raise self._no_unfused_update()

    def weights_gradient(self, values: Tensor, offsets: Tensor, weights: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient ``[N]`` of the factors of the ids, with the table weights as they are now.

        ``gradient`` is ``[B, output_dim]``.
        """
        raise self._no_unfused_update()

    def merge(self, values: Tensor, offsets: Tensor, weights: Tensor | None, gradient: Tensor) -> list[MergedGradient]:
        """Return the merged gradient of each local table for ``gradient`` ``[B, output_dim]``; nothing changes."""
        raise self._no_unfused_update()

    def add_decay(self, merged: Sequence[MergedGradient]) -> list[MergedGradient]:
        """Return the gradients with L2 weight decay added, as the optimizer is to see them (the same without it)."""
        raise self._no_unfused_update()

    def apply(self, merged: Sequence[MergedGradient], mean_squares: Sequence[Tensor] | None = None) -> None:
        """Apply one optimizer step to every local table.

        Args:
            merged: Per local table, after ``add_decay``.
            mean_squares: Per local table ``[U]`` mean of the squared gradient over the columns of the whole table, for
                a row-wise optimizer on a column shard; None takes the mean over the shard's own columns.
        """
        raise self._no_unfused_update()

    def _no_unfused_update(self) -> UnsupportedError:
        return UnsupportedError(f"{type(self).__name__} has no unfused update; its capability must not claim it")
