"""Data-parallel tables: a replica on every rank, one merged update per global batch.

The gradients of the touched rows are summed over the ranks before the optimizer runs, and rows that no sample
touched do not move, exactly as for a sharded table; every replica ends with the same bits.

Shapes: B_c bags of this rank in bag class c, C the largest of a group's, D_c columns of a class.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from neo.comms.collectives import Collectives
from neo.ops.pooled_lookup import MergedGradient, PooledLookup
from neo.sharded.input_dist import GroupInput
from neo.sharded.layout import GroupLayout, Layout, Source
from neo.sharded.sources import SourcePlace, Sources


class Replicas:
    """The replicated tables of one collection on this rank.

    Args:
        layout: The replica groups and what reads them.
        lookups: One per replica group.
        places: Where the lengths of each source stand.
        collectives: This rank's group.
    """

    def __init__(
        self,
        layout: Layout,
        lookups: Sequence[PooledLookup],
        places: Mapping[Source, SourcePlace],
        collectives: Collectives,
    ) -> None:
        self._layout = layout
        self._lookups = lookups
        self._places = places
        self._comms = collectives

    def inputs(self, sources: Sources) -> list[GroupInput]:
        """Return what each replica group reads of this rank's batch."""
        return [self._group_input(group, sources) for group in self._layout.replica_groups]

    def pool(self, inputs: Sequence[GroupInput], results: Sequence[Tensor]) -> None:
        """Write the sums of every replicated output into the results ``[B_c, D_c]`` of its bag class."""
        for group, lookup, part in zip(self._layout.replica_groups, self._lookups, inputs, strict=True):
            pooled = lookup.pool(part.values, part.offsets, part.weights)
            column = 0
            for slot in group.slots:
                output = self._layout.outputs[slot.output]
                result = results[output.bag_class]
                source = pooled[: result.shape[0], column : column + output.dim]
                result[:, output.column : output.column + output.dim] = source
                column += output.dim

    def step(
        self, inputs: Sequence[GroupInput], gradients: Sequence[Tensor], divisor: float, wants_weights: bool
    ) -> list[Tensor | None]:
        """Merge the gradients ``[B_c, D_c]`` over this rank and then all ranks, and apply one step to every replica.

        Args:
            inputs: As ``inputs`` returned them.
            gradients: Of the results, per bag class.
            divisor: What the gradients of the tables are divided by, as for the sharded ones.
            wants_weights: Whether the ids' weights need gradients.

        Returns:
            Per group with weights, their gradient (of this rank's loss: not divided), or None.
        """
        merged: list[list[MergedGradient]] = []
        weights_gradients: list[Tensor | None] = []
        for group, lookup, part in zip(self._layout.replica_groups, self._lookups, inputs, strict=True):
            gradient = self._gradient(group, gradients, part.capacity)
            weights = None if part.weights is None else part.weights.detach()
            if weights is not None:
                wanted = (
                    lookup.weights_gradient(part.values, part.offsets, weights, gradient) if wants_weights else None
                )
                weights_gradients.append(wanted)
            merged.append(lookup.merge(part.values, part.offsets, weights, gradient / divisor))
        for lookup, parts in zip(self._lookups, self._reduce(merged), strict=True):
            lookup.apply(lookup.add_decay(parts))
        return weights_gradients

    def _gradient(self, group: GroupLayout, gradients: Sequence[Tensor], capacity: int) -> Tensor:
        outputs = [self._layout.outputs[slot.output] for slot in group.slots]
        gradient = gradients[0].new_zeros(capacity, sum(output.dim for output in outputs))
        column = 0
        for output in outputs:
            part = gradients[output.bag_class]
            gradient[: part.shape[0], column : column + output.dim] = part[
                :, output.column : output.column + output.dim
            ]
            column += output.dim
        return gradient

    def _reduce(self, merged: Sequence[Sequence[MergedGradient]]) -> list[list[MergedGradient]]:
        """Sum the gradients of all replicas over the ranks in one all-reduce, and tell which rows any rank touched."""
        tables = [weight for lookup in self._lookups for weight in lookup.weights()]
        sizes = [weight.numel() for weight in tables] + [weight.shape[0] for weight in tables]
        parts = [part for group in merged for part in group]
        flat = torch.zeros(sum(sizes), device=tables[0].device)
        blocks = flat.split(sizes)
        sums = [block.view(weight.shape) for block, weight in zip(blocks, tables, strict=False)]
        touched = blocks[len(tables) :]
        for part, block, counts in zip(parts, sums, touched, strict=True):
            block.index_copy_(0, part.rows, part.gradient)
            counts.index_fill_(0, part.rows, 1.0)
        self._comms.all_reduce(flat)
        reduced = []
        for block, counts in zip(sums, touched, strict=True):
            rows = counts.nonzero().flatten()
            reduced.append(MergedGradient(rows, block[rows]))
        found = iter(reduced)
        return [[next(found) for _ in group] for group in merged]

    def _group_input(self, group: GroupLayout, sources: Sources) -> GroupInput:
        places = [self._places[self._layout.outputs[slot.output].source] for slot in group.slots]
        capacity = max(1, *(sources.bag_counts[place.bag_class] for place in places))
        lengths = [sources.lengths[place.bag_class][place.row] for place in places]
        bags = lengths[0].new_zeros(len(places), capacity)
        for row, own in zip(bags, lengths, strict=True):
            row[: own.numel()] = own
        offsets = bags.new_zeros(bags.numel() + 1)
        torch.cumsum(bags.reshape(-1), dim=0, out=offsets[1:])
        weights = None
        if group.weighted:
            weights = torch.cat([_given(sources.weights[place.index]) for place in places])
        return GroupInput(torch.cat([sources.values[place.index] for place in places]), offsets, weights, capacity)


def _given(weights: Tensor | None) -> Tensor:
    assert weights is not None  # the input check saw to it
    return weights
