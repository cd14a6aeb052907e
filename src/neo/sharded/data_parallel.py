"""Data-parallel tables: a replica on every rank, one merged update per global batch.

The gradients of the touched rows are summed over the ranks before the optimizer runs, and rows that no sample
touched do not move, exactly as for a sharded table; every replica ends with the same bits.

Shapes: B samples of this rank, N ids of one output, D columns of its table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from neo.comms.collectives import Collectives
from neo.optim.sparse import State, create_row_optimizer
from neo.optim.spec import SparseOptimizerSpec
from neo.tables.spec import TableSpec


@dataclass(frozen=True)
class ReplicaInput:
    """What one output reads: ids ``[N]``, lengths ``[B]``, weights ``[N]`` or None."""

    replica: int
    values: Tensor
    lengths: Tensor
    weights: Tensor | None


class Replicas:
    """The replicated tables of one collection on this rank.

    Args:
        tables: The replicated tables.
        optimizer: The sparse optimizer.
        collectives: This rank's group.
        device: Where the replicas live.
    """

    def __init__(
        self,
        tables: Sequence[TableSpec],
        *,
        optimizer: SparseOptimizerSpec,
        collectives: Collectives,
        device: torch.device,
    ) -> None:
        self.weights = [torch.zeros(table.num_embeddings, table.embedding_dim, device=device) for table in tables]
        self._optimizer = create_row_optimizer(optimizer)
        self.states: list[State] = [
            self._optimizer.create_state(table.num_embeddings, table.embedding_dim, device) for table in tables
        ]
        self._comms = collectives
        self._lr = optimizer.lr
        self._steps = 0
        self._anchor = torch.zeros((), requires_grad=True, device=device)

    def set_learning_rate(self, lr: float) -> None:
        """Use ``lr`` from the next step on."""
        self._lr = lr

    def lookup(self, inputs: Sequence[ReplicaInput], gradient_divisor: float) -> list[Tensor]:
        """Return the sums ``[B, D]`` of each output; their backward applies one step to all replicas together.

        Args:
            inputs: One per output.
            gradient_divisor: What the gradients are divided by, as for the sharded tables.
        """
        if not inputs:
            return []
        weights = [part.weights for part in inputs if part.weights is not None]
        return list(_ReplicaLookup.apply(self, tuple(inputs), gradient_divisor, self._anchor, *weights))  # type: ignore[no-untyped-call]

    def update(self, merged: Sequence[Tensor], touched: Sequence[Tensor]) -> None:
        """Apply one step. ``merged`` ``[rows, D]`` and ``touched`` ``[rows]`` are per replica, summed over ranks."""
        self._steps += 1
        for weight, state, gradient, counts in zip(self.weights, self.states, merged, touched, strict=True):
            rows = counts.nonzero().flatten()
            self._optimizer.update(weight, state, rows, gradient[rows], self._lr, self._steps)

    def reduce_and_update(self, inputs: Sequence[ReplicaInput], gradients: Sequence[Tensor], divisor: float) -> None:
        """Merge the gradients ``[B, D]`` of all outputs, sum them over the ranks in one all-reduce, and step."""
        sizes = [weight.numel() for weight in self.weights] + [weight.shape[0] for weight in self.weights]
        flat = torch.zeros(sum(sizes), device=self._anchor.device)
        parts = flat.split(sizes)
        merged = [part.view_as(weight) for part, weight in zip(parts, self.weights, strict=False)]
        touched = parts[len(self.weights) :]
        for part, gradient in zip(inputs, gradients, strict=True):
            samples = torch.repeat_interleave(part.lengths, output_size=part.values.numel())
            rows = gradient[samples] / divisor
            if part.weights is not None:
                rows.mul_(part.weights.detach().unsqueeze(1))
            merged[part.replica].index_add_(0, part.values, rows)
            touched[part.replica].index_fill_(0, part.values, 1.0)
        self._comms.all_reduce(flat)
        self.update(merged, touched)


class _ReplicaLookup(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        replicas: Replicas,
        inputs: tuple[ReplicaInput, ...],
        divisor: float,
        anchor: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.replicas, ctx.inputs, ctx.divisor = replicas, inputs, divisor
        return tuple(
            functional.embedding_bag(
                part.values,
                replicas.weights[part.replica],
                part.lengths.cumsum(0) - part.lengths,
                mode="sum",
                per_sample_weights=part.weights,
            )
            for part in inputs
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        replicas: Replicas = ctx.replicas
        weights_gradients: list[Tensor | None] = []
        if any(ctx.needs_input_grad[4:]):
            for part, gradient in zip(ctx.inputs, gradients, strict=True):
                if part.weights is not None:
                    samples = torch.repeat_interleave(part.lengths, output_size=part.values.numel())
                    rows = replicas.weights[part.replica][part.values]
                    weights_gradients.append((gradient[samples] * rows).sum(dim=1))
        else:
            weights_gradients = [None] * (len(ctx.needs_input_grad) - 4)
        replicas.reduce_and_update(ctx.inputs, gradients, ctx.divisor)
        return None, None, None, None, *weights_gradients
