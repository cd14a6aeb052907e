"""What the outputs read: the features of a batch and what is derived from them, lengths by bag class, ids by source.

Shapes: B_c bags of this rank in bag class c, N_s ids of source s.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neo.data.batch import SparseFeatures
from neo.sharded.layout import Derived, Layout, Source


@dataclass(frozen=True)
class Sources:
    """One batch of this rank.

    Attributes:
        batch_size: Samples.
        bag_counts: Per bag class, B_c.
        lengths: Per bag class ``[sources of the class, B_c]``.
        values: Per source ``[N_s]``.
        weights: Per source ``[N_s]``, None where the batch has no weights or the source takes none.
    """

    batch_size: int
    bag_counts: tuple[int, ...]
    lengths: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    weights: tuple[Tensor | None, ...]


@dataclass(frozen=True)
class SourcePlace:
    """Where a source's lengths stand.

    Attributes:
        index: Its index among the sources.
        bag_class: Its bag class.
        row: Its row in the lengths of that class.
    """

    index: int
    bag_class: int
    row: int


class SourceMaker:
    """Derives the sources of a layout from a checked batch.

    Args:
        layout: What the outputs read.
        features: The features of a checked batch, in order.

    Attributes:
        places: By source; the keys are in source order.
    """

    def __init__(self, layout: Layout, features: Sequence[str]) -> None:
        self._features = tuple(features)
        self._normalised = _read(layout, Derived.NORMALISED, features)
        self._sequences = _read(layout, Derived.SEQUENCE, features)
        plain = [Source(feature) for feature in features]
        self._variable = any(bag_class.source in plain for bag_class in layout.bag_classes)
        classes = {bag_class.source: position for position, bag_class in enumerate(layout.bag_classes)}
        self._num_classes = len(layout.bag_classes)
        self.places: dict[Source, SourcePlace] = {}
        rows = [0] * self._num_classes
        derived = [Source(feature, Derived.NORMALISED) for feature in self._normalised]
        derived += [Source(feature, Derived.SEQUENCE) for feature in self._sequences]
        for source in (*plain, *derived):
            bags_of: Source | None = source
            if source.derived is not Derived.SEQUENCE:
                bags_of = Source(source.feature) if self._variable else None
            # A feature that is read as a sequence only stands in no class.
            bag_class = classes.get(bags_of, -1)
            self.places[source] = SourcePlace(len(self.places), bag_class, rows[bag_class] if bag_class >= 0 else 0)
            if bag_class >= 0:
                rows[bag_class] += 1

    def __call__(self, sparse: SparseFeatures) -> Sources:
        """Return the sources of a batch whose features are exactly those of the collection."""
        counts = sparse.count_ids()
        values = list(sparse.values.split(counts))
        weights: list[Tensor | None] = [None] * len(values)
        if sparse.weights is not None:
            weights = list(sparse.weights.split(counts))
        rows: list[list[Tensor]] = [[] for _ in range(self._num_classes)]
        lengths = sparse.bag_lengths if self._variable or self._normalised else ()
        if self._variable:
            for feature, own in zip(self._features, lengths, strict=True):
                if (place := self.places[Source(feature)]).bag_class >= 0:
                    rows[place.bag_class].append(own)
        for feature in self._normalised:
            position = self._features.index(feature)
            own_weights = weights[position]
            assert own_weights is not None  # the input check saw to it
            values.append(values[position])
            weights.append(_normalise(own_weights, lengths[position]))
            rows[self.places[Source(feature, Derived.NORMALISED)].bag_class].append(lengths[position])
        for feature in self._sequences:
            position = self._features.index(feature)
            values.append(values[position])
            weights.append(None)
            rows[self.places[Source(feature, Derived.SEQUENCE)].bag_class].append(torch.ones_like(values[position]))
        by_class = tuple(self._stack(sparse, position, found) for position, found in enumerate(rows))
        bag_counts = tuple(block.shape[1] for block in by_class)
        return Sources(sparse.batch_size, bag_counts, by_class, tuple(values), tuple(weights))

    def _stack(self, sparse: SparseFeatures, bag_class: int, rows: list[Tensor]) -> Tensor:
        """Return the lengths of one bag class; those of an ordinary batch stand first, as they are."""
        is_ordinary = not self._variable and self.places[Source(self._features[0])].bag_class == bag_class
        if is_ordinary:
            plain = sparse.lengths_by_feature
            return torch.cat([plain, torch.stack(rows)]) if rows else plain
        return torch.stack(rows) if len(rows) > 1 else rows[0].unsqueeze(0)


def _read(layout: Layout, derived: Derived, features: Sequence[str]) -> tuple[str, ...]:
    """Return the features of which some output reads what is derived so."""
    return tuple(f for f in features if any(output.source == Source(f, derived) for output in layout.outputs))


def _normalise(weights: Tensor, lengths: Tensor) -> Tensor:
    """Return the weights divided by the sum of their bag, 0 where that is 0."""
    samples = torch.repeat_interleave(lengths, output_size=weights.numel())
    sums = weights.new_zeros(lengths.numel()).index_add(0, samples, weights)[samples]
    is_zero = sums == 0
    return torch.where(is_zero, 0.0, weights / sums.masked_fill(is_zero, 1.0))
