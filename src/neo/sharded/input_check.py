"""The check of a batch before anything travels: features present, weights where they belong, ids inside their tables.

Shapes: F features of the collection, B samples, N ids.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from neo.data.batch import SparseFeatures
from neo.data.spec import OutOfRange
from neo.errors import DataError, UnsupportedError
from neo.tables.spec import TableSpec

# Ids per feature from which a call per feature costs less than temporaries over all ids (measured on a CPU core).
_LONG_FEATURE = 512


class ErrorKind(IntEnum):
    """What a rank reports to the others about its input."""

    NONE = 0
    OUT_OF_RANGE = 1
    MALFORMED = 2


@dataclass(frozen=True)
class InputError:
    """A mistake in one rank's batch, small enough to travel in the header of the lengths exchange."""

    kind: ErrorKind
    feature: int = 0
    value: int = 0
    sample: int = 0
    position: int = 0
    message: str = ""  # stays on its rank


@dataclass(frozen=True)
class FeatureTable:
    """A feature of the collection and the smallest table that reads it."""

    feature: str
    table: str
    num_embeddings: int
    weighted: bool


def feature_tables(tables: Sequence[TableSpec], policy: OutOfRange) -> tuple[FeatureTable, ...]:
    """Return the features that the tables read, in declared order.

    Raises:
        UnsupportedError: A feature is read by a weighted and an unweighted table, or ids are to be repaired for
            tables of different sizes at once.
    """
    found: dict[str, FeatureTable] = {}
    for table in tables:
        for feature in table.feature_names:
            entry = FeatureTable(feature, table.name, table.num_embeddings, table.weighted)
            other = found.setdefault(feature, entry)
            if other.weighted != entry.weighted:
                raise UnsupportedError(
                    f"feature '{feature}' is read by the {'weighted' if other.weighted else 'unweighted'} table "
                    f"'{other.table}' and by '{table.name}', which is not; give one of them a feature of its own"
                )
            if other.num_embeddings != entry.num_embeddings and policy is not OutOfRange.ERROR:
                raise UnsupportedError(
                    f"out_of_range={policy} is not defined for feature '{feature}', which reads tables of different "
                    f"sizes ('{other.table}': {other.num_embeddings}, '{table.name}': {entry.num_embeddings} rows); "
                    f"use out_of_range=error"
                )
            if entry.num_embeddings < other.num_embeddings:
                found[feature] = entry
    return tuple(found.values())


class InputCheck:
    """Brings a batch into the collection's own feature order and finds (or repairs) what is wrong with it.

    Args:
        tables: The collection's tables.
        policy: What to do with ids outside their table.
        variable_batch: Whether each feature may have its own number of bags.
    """

    def __init__(self, tables: Sequence[TableSpec], policy: OutOfRange, *, variable_batch: bool = False) -> None:
        self._variable_batch = variable_batch
        self.features = feature_tables(tables, policy)
        self.policy = policy
        self.repaired = {entry.table: 0 for entry in self.features}
        self._limits = torch.tensor([entry.num_embeddings for entry in self.features])

    def __call__(self, sparse: SparseFeatures) -> tuple[SparseFeatures, InputError | None]:
        """Return the batch with exactly the collection's features, and the first mistake in it.

        A batch with a mistake comes back empty (no samples): it must not be used, but it can travel.
        """
        try:
            if sparse.bag_counts is not None and not self._variable_batch:
                raise DataError(
                    f"the batch has a bag count for each feature ({sparse.bag_counts}); build the "
                    f"EmbeddingBagCollection with variable_batch=True to read it"
                )
            chosen = _select(sparse, self.features)
        except DataError as error:
            return self._empty(sparse), InputError(ErrorKind.MALFORMED, message=str(error))
        bad = self._outside(chosen)
        if bad is None:
            return chosen, None
        if self.policy is OutOfRange.ERROR:
            return self._empty(sparse), _locate(chosen, int(bad.nonzero()[0]))
        return self._repair(chosen, bad), None

    def _outside(self, sparse: SparseFeatures) -> Tensor | None:
        """Return ``[N]`` which ids are outside their table, or None if none is."""
        counts = torch.tensor(sparse.count_ids(), device=sparse.values.device)
        if self._limits.device != counts.device:
            self._limits = self._limits.to(counts.device)
        if sparse.values.device.type == "cpu" and sparse.values.numel() > _LONG_FEATURE * len(self.features):
            # One pass without temporaries; the pass below only has to find which id it was.
            parts = sparse.values.split(counts.tolist())
            ranges = (part.aminmax() for part in parts if part.numel())
            limits = [entry.num_embeddings for entry, part in zip(self.features, parts, strict=True) if part.numel()]
            if all(int(low) >= 0 and int(high) < limit for (low, high), limit in zip(ranges, limits, strict=True)):
                return None
        per_id = torch.repeat_interleave(self._limits, counts, output_size=sparse.values.numel())
        bad = (sparse.values < 0) | (sparse.values >= per_id)
        return bad if bool(bad.any()) else None

    def _repair(self, sparse: SparseFeatures, bad: Tensor) -> SparseFeatures:
        bags = torch.repeat_interleave(sparse.lengths, output_size=sparse.values.numel())
        per_feature = [int(part.sum()) for part in bad.split(sparse.count_ids())]
        for entry, count in zip(self.features, per_feature, strict=True):
            self.repaired[entry.table] += count
        if self.policy is OutOfRange.CLAMP_ZERO:
            values, lengths, weights = sparse.values.masked_fill(bad, 0), sparse.lengths, sparse.weights
        else:
            kept = ~bad
            values, lengths = (
                sparse.values[kept],
                sparse.lengths - torch.bincount(bags[bad], minlength=len(sparse.lengths)),
            )
            weights = None if sparse.weights is None else sparse.weights[kept]
        return _like(sparse, sparse.keys, lengths, values, weights, sparse.weighted, sparse.bag_counts)

    def _empty(self, sparse: SparseFeatures) -> SparseFeatures:
        weighted = tuple(entry.weighted for entry in self.features)
        nothing = sparse.values.new_empty(0)
        weights = torch.empty(0, device=nothing.device) if any(weighted) else None
        return SparseFeatures([entry.feature for entry in self.features], nothing, nothing, weights, weighted)


def _select(sparse: SparseFeatures, features: Sequence[FeatureTable]) -> SparseFeatures:
    """Return the features in collection order; features that no table reads are left out."""
    position = {key: index for index, key in enumerate(sparse.keys)}
    for entry in features:
        if entry.feature not in position:
            raise DataError(
                f"the batch has no feature '{entry.feature}' for table '{entry.table}'; it has {sparse.keys}"
            )
        if sparse.weighted[position[entry.feature]] and not entry.weighted:
            raise DataError(
                f"feature '{entry.feature}' comes with weights, but table '{entry.table}' is unweighted; "
                f"declare the table with weighted=True or drop the weights"
            )
        if entry.weighted and not sparse.weighted[position[entry.feature]]:
            raise DataError(
                f"feature '{entry.feature}' comes without weights, but table '{entry.table}' is weighted; "
                f"give one weight per id or declare the table with weighted=False"
            )
    if sparse.keys == tuple(entry.feature for entry in features):
        return sparse
    rows = [position[entry.feature] for entry in features]
    lengths = sparse.bag_lengths
    counts = sparse.count_ids()
    values = sparse.values.split(counts)
    weights = None if sparse.weights is None else sparse.weights.split(counts)
    return _like(
        sparse,
        [entry.feature for entry in features],
        torch.cat([lengths[row] for row in rows]),
        torch.cat([values[row] for row in rows]),
        None if weights is None else torch.cat([weights[row] for row in rows]),
        [sparse.weighted[row] for row in rows],
        None if sparse.bag_counts is None else [sparse.bag_counts[row] for row in rows],
    )


def _like(
    sparse: SparseFeatures,
    keys: Sequence[str],
    lengths: Tensor,
    values: Tensor,
    weights: Tensor | None,
    weighted: Sequence[bool],
    bag_counts: Sequence[int] | None,
) -> SparseFeatures:
    """Return other features of the same samples."""
    batch_size = None if bag_counts is None else sparse.batch_size
    return SparseFeatures(keys, lengths, values, weights, weighted, bag_counts=bag_counts, batch_size=batch_size)


def _locate(sparse: SparseFeatures, index: int) -> InputError:
    ends = sparse.lengths.cumsum(dim=0)
    bag = int(torch.searchsorted(ends, index, right=True))
    position = index - int(ends[bag] - sparse.lengths[bag])
    feature, first = 0, 0
    for feature, lengths in enumerate(sparse.bag_lengths):  # noqa: B007
        if bag < first + lengths.numel():
            break
        first += lengths.numel()
    return InputError(ErrorKind.OUT_OF_RANGE, feature, int(sparse.values[index]), bag - first, position)


def raise_input_errors(
    errors: Mapping[int, InputError], own_rank: int, own_message: str, features: Sequence[FeatureTable]
) -> None:
    """Raise what the ranks reported; every rank raises, before any weight has changed.

    Raises:
        DataError: Names the rank and, for an id outside its table, feature, table, value, sample, position, range.
    """
    for rank, error in sorted(errors.items()):
        if error.kind is ErrorKind.OUT_OF_RANGE:
            entry = features[error.feature]
            raise DataError(
                f"rank {rank}: id {error.value} of feature '{entry.feature}' (sample {error.sample} of the rank's "
                f"batch, position {error.position}) is outside table '{entry.table}', "
                f"range [0, {entry.num_embeddings}); "
                f"no weight was changed; fix the data, or set out_of_range to clamp_zero or drop"
            )
    if own_rank in errors:
        raise DataError(f"rank {own_rank}: {own_message}; no weight was changed")
    rank = min(errors)
    raise DataError(f"rank {rank} refused its batch (its own message says why); no weight was changed")
