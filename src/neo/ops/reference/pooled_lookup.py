"""Pooled lookup in plain PyTorch: slow and simple, every optimizer, every width, every device."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from neo.ops.pooled_lookup import LocalTable, MergedGradient, PooledLookup
from neo.optim.sparse import State, create_row_optimizer
from neo.optim.spec import SparseOptimizerSpec


class ReferencePooledLookup(PooledLookup):
    """See ``PooledLookup``. Duplicates are merged before the step; repeats of a run are bit-equal on the CPU."""

    def __init__(
        self,
        tables: Sequence[LocalTable],
        *,
        slots: Sequence[int],
        optimizer: SparseOptimizerSpec,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        super().__init__(tables, slots=slots, optimizer=optimizer, device=device, seed=seed)
        self._row_optimizer = create_row_optimizer(optimizer)
        self._weights = [torch.zeros(table.num_rows, table.num_columns, device=device) for table in tables]
        self._states: list[State] = [
            self._row_optimizer.create_state(table.num_rows, table.num_columns, device) for table in tables
        ]
        self._lr = optimizer.lr
        self._steps = 0
        self._anchor = torch.zeros((), requires_grad=True)  # makes the output require a gradient

    def __call__(self, values: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Look up and sum every bag; see the base class."""
        pooled: Tensor = _PooledLookup.apply(self, values, offsets, weights, self._anchor)  # type: ignore[no-untyped-call]
        return pooled

    def set_learning_rate(self, lr: float) -> None:
        """Use ``lr`` from the next step on."""
        self._lr = lr

    def weights(self) -> list[Tensor]:
        """Return the weights of each local table."""
        return self._weights

    def states(self) -> list[State]:
        """Return the optimizer states of each local table."""
        return self._states

    def pool(self, values: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the pooled sums ``[B, output_dim]``."""
        outputs = []
        for slot, ids, samples, factors in self._bags(values, offsets, weights):
            rows = self._weights[self.slots[slot]][ids]
            if factors is not None:
                rows = rows * factors.unsqueeze(1)
            pooled = torch.zeros(self._num_bags(offsets), rows.shape[1], device=rows.device)
            outputs.append(pooled.index_add_(0, samples, rows))
        return torch.cat(outputs, dim=1)

    def merge(self, values: Tensor, offsets: Tensor, weights: Tensor | None, gradient: Tensor) -> list[MergedGradient]:
        """Merge the gradients of all ids of each table; see the base class."""
        parts: list[list[tuple[Tensor, Tensor]]] = [[] for _ in self.tables]
        column = 0
        for slot, ids, samples, factors in self._bags(values, offsets, weights):
            table = self.slots[slot]
            width = self.tables[table].num_columns
            rows = gradient[:, column : column + width][samples]
            column += width
            parts[table].append((ids, rows if factors is None else rows * factors.unsqueeze(1)))
        merged = []
        for pairs in parts:
            ids = torch.cat([pair[0] for pair in pairs])
            unique, inverse = torch.unique(ids, return_inverse=True)
            rows = torch.cat([pair[1] for pair in pairs])
            sums = torch.zeros(unique.numel(), rows.shape[1], device=gradient.device).index_add_(0, inverse, rows)
            merged.append(MergedGradient(unique, sums))
        return merged

    def add_decay(self, merged: Sequence[MergedGradient]) -> list[MergedGradient]:
        """Add L2 weight decay; see the base class."""
        return list(merged)

    def apply(self, merged: Sequence[MergedGradient], mean_squares: Sequence[Tensor] | None = None) -> None:
        """Apply one step; see the base class."""
        self._steps += 1
        for index, (weight, state, part) in enumerate(zip(self._weights, self._states, merged, strict=True)):
            squares = None if mean_squares is None else mean_squares[index]
            self._row_optimizer.update(weight, state, part.rows, part.gradient, self._lr, self._steps, squares)

    def weights_gradient(self, values: Tensor, offsets: Tensor, weights: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient ``[N]`` of the factors of the ids, with the weights before the step."""
        parts = []
        column = 0
        for slot, ids, samples, _ in self._bags(values, offsets, weights):
            rows = self._weights[self.slots[slot]][ids]
            parts.append((gradient[:, column : column + rows.shape[1]][samples] * rows).sum(dim=1))
            column += rows.shape[1]
        return torch.cat(parts)

    def _num_bags(self, offsets: Tensor) -> int:
        return (offsets.numel() - 1) // len(self.slots)

    def _bags(
        self, values: Tensor, offsets: Tensor, weights: Tensor | None
    ) -> list[tuple[int, Tensor, Tensor, Tensor | None]]:
        """Return slot, ids, sample of each id and factor of each id, for every slot."""
        bags = self._num_bags(offsets)
        lengths = offsets.diff().view(len(self.slots), bags)
        bounds = offsets[::bags].tolist() if bags else [0] * (len(self.slots) + 1)
        result: list[tuple[int, Tensor, Tensor, Tensor | None]] = []
        for slot in range(len(self.slots)):
            part = slice(bounds[slot], bounds[slot + 1])
            samples = torch.repeat_interleave(lengths[slot])
            result.append((slot, values[part], samples, None if weights is None else weights[part]))
        return result


class _PooledLookup(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        op: ReferencePooledLookup,
        values: Tensor,
        offsets: Tensor,
        weights: Tensor | None,
        anchor: Tensor,
    ) -> Tensor:
        ctx.op = op
        ctx.save_for_backward(values, offsets, weights)
        return op.pool(values, offsets, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None, Tensor | None, Tensor | None]:
        values, offsets, weights = ctx.saved_tensors
        wanted = weights is not None and ctx.needs_input_grad[3]
        weights_gradient = ctx.op.weights_gradient(values, offsets, weights, gradient) if wanted else None
        ctx.op.apply(ctx.op.add_decay(ctx.op.merge(values, offsets, weights, gradient)))
        return None, None, None, weights_gradient, None
