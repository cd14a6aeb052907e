"""Pooled lookup in plain PyTorch: every optimizer, weight type and width, on every device."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from neo.ops.pooled_lookup import LocalTable, MergedGradient, PooledLookup
from neo.ops.reference.table_group import GroupBags, TableGroup
from neo.optim.sparse import State
from neo.optim.spec import SparseOptimizerSpec


class _SlotsOfGroup:
    """Which slots read the tables of a group: their numbers, their first storage rows, their output columns."""

    def __init__(self, slots: Sequence[int], first_rows: Sequence[int], columns: Sequence[int]) -> None:
        self.slots, self.first_rows, self.columns = tuple(slots), tuple(first_rows), tuple(columns)


class ReferencePooledLookup(PooledLookup):
    """See ``PooledLookup``. Duplicates are merged before the step; repeats of a run are bit-equal.

    Tables with the same columns share one storage, so that one sort and one pass over blocks serve all of them.
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
        super().__init__(tables, slots=slots, optimizer=optimizer, device=device, seed=seed)
        members: dict[tuple[int, int], list[int]] = {}
        for index, table in enumerate(self.tables):
            members.setdefault((table.num_columns, table.first_column), []).append(index)
        self._members = list(members.values())
        self._groups = [
            TableGroup([self.tables[index] for index in group], optimizer=optimizer, device=device, seed=seed)
            for group in self._members
        ]
        self._readers = [self._readers_of(group) for group in range(len(self._groups))]
        self._lr = optimizer.lr
        self._anchor = torch.zeros((), requires_grad=True)  # makes the output require a gradient

    def __call__(self, values: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Look up and sum every bag; see the base class."""
        pooled: Tensor = _PooledLookup.apply(self, values, offsets, weights, self._anchor)  # type: ignore[no-untyped-call]
        return pooled

    def set_learning_rate(self, lr: float) -> None:
        """Use ``lr`` from the next forward on."""
        self._lr = lr

    def weights(self) -> list[Tensor]:
        """Return the weights of each local table."""
        return self._by_table([group.weights for group in self._groups])

    def states(self) -> list[State]:
        """Return the optimizer states of each local table."""
        return self._by_table([group.states for group in self._groups])

    @torch.no_grad()
    def pool(self, values: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the pooled sums ``[B, output_dim]``."""
        bags = self._num_bags(offsets)
        output = torch.empty(bags, self.output_dim, dtype=torch.float32, device=self.device)
        for group, readers, read in self._reads(values, offsets, weights):
            sums = group.pool(read).view(len(readers.slots), bags, group.width)
            for position, column in enumerate(readers.columns):
                output[:, column : column + group.width] = sums[position]
        return output

    @torch.no_grad()
    def merge(self, values: Tensor, offsets: Tensor, weights: Tensor | None, gradient: Tensor) -> list[MergedGradient]:
        """Merge the gradients of all ids of each table; see the base class."""
        nothing = torch.zeros(0, dtype=torch.int64, device=self.device)
        merged = [MergedGradient(nothing, gradient.new_zeros(0, table.num_columns)) for table in self.tables]
        for index, (group, readers, read) in enumerate(self._reads(values, offsets, weights)):
            touched = group.touched(read, *self._rows_of_gradient(gradient, group, readers))
            starts = torch.tensor(group.starts, device=self.device)
            counts = torch.searchsorted(touched.rows, starts).diff().tolist()
            parts = zip(touched.rows.split(counts), group.merge(touched).split(counts), strict=True)
            for table, start, (rows, part) in zip(self._members[index], group.starts, parts, strict=False):
                merged[table] = MergedGradient(rows - start, part)
        return merged

    @torch.no_grad()
    def add_decay(self, merged: Sequence[MergedGradient]) -> list[MergedGradient]:
        """Add L2 weight decay; see the base class."""
        decayed = list(merged)
        for group, members in zip(self._groups, self._members, strict=True):
            for start, table in zip(group.starts, members, strict=False):
                rows, gradient = merged[table].rows, merged[table].gradient
                decayed[table] = MergedGradient(rows, group.add_l2(rows + start, gradient))
        return decayed

    @torch.no_grad()
    def apply(self, merged: Sequence[MergedGradient], mean_squares: Sequence[Tensor] | None = None) -> None:
        """Apply one step; see the base class."""
        self.num_steps += 1
        for group, members in zip(self._groups, self._members, strict=True):
            for start, table in zip(group.starts, members, strict=False):
                squares = None if mean_squares is None else mean_squares[table]
                group.step(merged[table].rows + start, merged[table].gradient, self._lr, self.num_steps, squares)

    @torch.no_grad()
    def weights_gradient(self, values: Tensor, offsets: Tensor, weights: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient ``[N]`` of the factors of the ids, with the weights before the step."""
        result = torch.empty_like(weights)
        bounds = self._bounds(offsets)
        for group, readers, read in self._reads(values, offsets, weights):
            of_group = group.factors_gradient(read, *self._rows_of_gradient(gradient, group, readers))
            begin = 0
            for slot in readers.slots:
                count = bounds[slot + 1] - bounds[slot]
                result[bounds[slot] : bounds[slot + 1]] = of_group[begin : begin + count]
                begin += count
        return result

    def step(self, values: Tensor, offsets: Tensor, weights: Tensor | None, gradient: Tensor, lr: float) -> None:
        """Apply one fused step: ``merge``, ``add_decay`` and ``apply``, without keeping the merged gradients."""
        self.num_steps += 1
        for group, readers, read in self._reads(values, offsets, weights):
            touched = group.touched(read, *self._rows_of_gradient(gradient, group, readers))
            group.step_touched(touched, lr, self.num_steps)

    @property
    def learning_rate(self) -> float:
        """What the next forward takes."""
        return self._lr

    def _num_bags(self, offsets: Tensor) -> int:
        return (offsets.numel() - 1) // len(self.slots) if self.slots else 0

    def _bounds(self, offsets: Tensor) -> list[int]:
        """Return where each slot begins among the ids, and where the last one ends."""
        bags = self._num_bags(offsets)
        bounds: list[int] = offsets[::bags].tolist() if bags else [0] * (len(self.slots) + 1)
        return bounds

    def _readers_of(self, group: int) -> _SlotsOfGroup:
        positions = {table: position for position, table in enumerate(self._members[group])}
        slots = [slot for slot, table in enumerate(self.slots) if table in positions]
        widths = [self.tables[table].num_columns for table in self.slots]
        starts = self._groups[group].starts
        return _SlotsOfGroup(
            slots, [starts[positions[self.slots[slot]]] for slot in slots], [sum(widths[:slot]) for slot in slots]
        )

    def _reads(
        self, values: Tensor, offsets: Tensor, weights: Tensor | None
    ) -> list[tuple[TableGroup, _SlotsOfGroup, GroupBags]]:
        bounds, bags = self._bounds(offsets), self._num_bags(offsets)
        result = []
        for group, readers in zip(self._groups, self._readers, strict=True):
            if not readers.slots:
                continue
            parts = [slice(bounds[slot], bounds[slot + 1]) for slot in readers.slots]
            rows = torch.cat([values[part] + first for part, first in zip(parts, readers.first_rows, strict=True)])
            if len(self._groups) == 1:
                result.append((group, readers, GroupBags(rows, offsets, weights)))
                continue
            lengths = torch.cat([offsets[slot * bags : (slot + 1) * bags + 1].diff() for slot in readers.slots])
            own_offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
            factors = None if weights is None else torch.cat([weights[part] for part in parts])
            result.append((group, readers, GroupBags(rows, own_offsets, factors)))
        return result

    def _rows_of_gradient(self, gradient: Tensor, group: TableGroup, readers: _SlotsOfGroup) -> tuple[Tensor, Tensor]:
        """Return the gradient with a row ``[D]`` per bag, and the row of each bag, slot by slot."""
        bags, slots = gradient.shape[0], len(readers.slots)
        numbers = torch.arange(bags * slots, device=gradient.device)
        if len(self._groups) == 1:
            rows = gradient.contiguous().view(bags * slots, group.width)
            return rows, numbers.view(bags, slots).t().flatten()
        parts = [gradient[:, column : column + group.width] for column in readers.columns]
        return torch.cat(parts), numbers

    def _by_table(self, of_groups: list[list[Any]]) -> list[Any]:
        found = {
            table: value
            for members, values in zip(self._members, of_groups, strict=True)
            for table, value in zip(members, values, strict=True)
        }
        return [found[table] for table in range(len(self.tables))]


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
        ctx.op, ctx.lr = op, op.learning_rate
        ctx.save_for_backward(values, offsets, weights)
        return op.pool(values, offsets, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None, Tensor | None, Tensor | None]:
        values, offsets, weights = ctx.saved_tensors
        wanted = weights is not None and ctx.needs_input_grad[3]
        weights_gradient = ctx.op.weights_gradient(values, offsets, weights, gradient) if wanted else None
        ctx.op.step(values, offsets, weights, gradient, ctx.lr)
        return None, None, None, weights_gradient, None
