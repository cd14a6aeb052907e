"""An ops backend in plain PyTorch: stochastic gradient descent on float32 tables.

Shapes as in ``neo.ops.pooled_lookup``: S slots, B bags per slot, N ids, D columns.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from neo.ops.pooled_lookup import LocalTable, PooledLookup
from neo.optim.spec import SparseOptimizerSpec


class AcmeLookup(PooledLookup):
    """Gathers rows and adds them up; the backward adds gradients up by row and takes one step."""

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
        self._lr = optimizer.lr
        self._weights = [torch.zeros(table.num_rows, table.num_columns, device=device) for table in tables]
        self._anchor = torch.zeros((), requires_grad=True)  # makes the output require a gradient

    def __call__(self, values: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Look up and sum every bag."""
        output: Tensor = _Step.apply(self, self._lr, values, offsets, weights, self._anchor)  # type: ignore[no-untyped-call]
        return output

    def set_learning_rate(self, lr: float) -> None:
        """Use ``lr`` from the next forward on."""
        self._lr = lr

    def weights(self) -> list[Tensor]:
        """Return the weights of each local table."""
        return self._weights

    def states(self) -> list[dict[str, Tensor]]:
        """Return nothing for each local table: SGD keeps no state."""
        return [{} for _ in self.tables]

    def bags(self, values: Tensor, offsets: Tensor) -> list[tuple[Tensor, Tensor, slice]]:
        """Return for each slot its ids, the bag of each, and where they lie in ``values``."""
        count = (offsets.numel() - 1) // len(self.slots)
        found = []
        for slot in range(len(self.slots)):
            bounds = offsets[slot * count : (slot + 1) * count + 1]
            place = slice(int(bounds[0]), int(bounds[-1]))
            bag = torch.repeat_interleave(torch.arange(count, device=values.device), bounds.diff())
            found.append((values[place], bag, place))
        return found


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, op: AcmeLookup, lr: float, values: Tensor, offsets: Tensor, weights: Tensor | None, anchor: Tensor
    ) -> Tensor:
        ctx.op, ctx.lr = op, lr
        ctx.save_for_backward(values, offsets, weights)
        count = (offsets.numel() - 1) // len(op.slots)
        outputs = []
        for (ids, bag, place), table in zip(op.bags(values, offsets), op.slots, strict=True):
            rows = op.weights()[table][ids]
            rows = rows if weights is None else rows * weights[place, None]
            outputs.append(rows.new_zeros(count, rows.shape[1]).index_add_(0, bag, rows))
        return torch.cat(outputs, dim=1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None, None, Tensor | None, None]:
        op, (values, offsets, weights) = ctx.op, ctx.saved_tensors
        of_factors = None if weights is None else torch.zeros_like(weights)
        sums = [torch.zeros_like(table) for table in op.weights()]
        begin = 0
        for (ids, bag, place), table in zip(op.bags(values, offsets), op.slots, strict=True):
            columns = op.tables[table].num_columns
            of_rows = gradient[:, begin : begin + columns][bag]
            begin += columns
            if weights is not None and of_factors is not None:
                of_factors[place] = (of_rows * op.weights()[table][ids]).sum(dim=1)
                of_rows = of_rows * weights[place, None]
            sums[table].index_add_(0, ids, of_rows)
        for table, total in zip(op.weights(), sums, strict=True):
            table.sub_(total, alpha=ctx.lr)  # a row that no bag holds loses 0
        return None, None, None, None, of_factors, None
