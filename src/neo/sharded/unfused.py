"""Lookup groups whose update runs in parts, because a row's columns lie in several shards: see ``row_states``."""

from collections.abc import Sequence

from torch import Tensor

from neo.ops.pooled_lookup import MergedGradient, PooledLookup
from neo.sharded.input_dist import GroupInput
from neo.sharded.row_states import RowStates


class UnfusedGroups:
    """The groups of one rank that share row-wise state with other column shards.

    Args:
        indices: Which of the rank's groups they are.
        lookups: Their lookups.
        row_states: The exchange of squares; None if no rank has such a group.
    """

    def __init__(self, indices: Sequence[int], lookups: Sequence[PooledLookup], row_states: RowStates | None) -> None:
        self.indices = tuple(indices)
        self._lookups = tuple(lookups)
        self._row_states = row_states

    def step(
        self, inputs: Sequence[GroupInput], gradients: Sequence[Tensor], wants_weights: bool
    ) -> list[Tensor | None]:
        """Apply one step to every such group; every rank calls it, also one without any.

        Args:
            inputs: What all groups of the rank read.
            gradients: ``[W * C, columns]`` of the results of all groups.
            wants_weights: Whether the ids' weights need gradients.

        Returns:
            Per unfused group with weights, their gradient or None.
        """
        if self._row_states is None:
            return []
        merged: list[list[MergedGradient]] = []
        weights_gradients: list[Tensor | None] = []
        for index, lookup in zip(self.indices, self._lookups, strict=True):
            part, gradient = inputs[index], gradients[index]
            weights = None if part.weights is None else part.weights.detach()
            if weights is not None:
                wanted = (
                    lookup.weights_gradient(part.values, part.offsets, weights, gradient) if wants_weights else None
                )
                weights_gradients.append(wanted)
            merged.append(lookup.add_decay(lookup.merge(part.values, part.offsets, weights, gradient)))
        flat = [part for parts in merged for part in parts]
        squares = [part.gradient.square().sum(dim=1) for part in flat]
        means = self._row_states.mean_squares([part.rows for part in flat], squares)
        first = 0
        for lookup, parts in zip(self._lookups, merged, strict=True):
            lookup.apply(parts, means[first : first + len(parts)])
            first += len(parts)
        return weights_gradients
