"""Generated samples, torch-free: Zipf ids, single- and multi-hot, with labels from a teacher that is known.

Every number is a hash of (seed, split, sample, feature, position): a rank makes exactly its own samples, and no sample
depends on the world size, the batch size or the order in which samples are made.

Shapes: F sparse features, B samples, D dense features, N ids in all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import gcd
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from neo.data.hashing import Hashes, combine, mix, uniform
from neo.data.reader import Positions, Samples
from neo.data.schema import DataSchema, DenseColumn, SparseColumn
from neo.data.spec import DEFAULT_POOLING, DEFAULT_ROWS, DataSpec, Encoding, Split

_BLOCK_ROWS = 32_768
_GRID = 16_384
_BINS = 2**20
_EVEN_QUARTERS = np.uint64(0x0000FFFF0000FFFF)
_LOW_HALF = np.uint64(0xFFFFFFFF)

# The teacher: logit = bias + signal of the tables + signal of the dense features, the last two with these deviations.
_BIAS = -1.2
_TABLE_SIGNAL = 1.7
_DENSE_SIGNAL = 0.3
# The effect of an id falls with its popularity, as 1 / (1 + rank / this): what is rare is hardly learned in one epoch.
_EFFECT_RANKS = 50.0


class _Stream(IntEnum):
    """What a stream of random numbers is for."""

    DENSE = 1
    LABEL = 2
    LENGTH = 3
    ID = 4
    TEACHER_ROW = 5
    TEACHER_DENSE = 6
    PERMUTATION = 7


def synthetic_schema(
    data: DataSpec,
    num_embeddings: Sequence[int] | None,
    pooling_factors: Sequence[float] | None,
    seed: int,
    folder: Path,
) -> DataSchema:
    """Return the schema of generated data: features ``sparse_0``, ... with the given rows and mean ids per sample.

    Without both lists there are 8 tables of 1,000 rows, three of them multi-hot. With rows alone every sample has one
    id per feature, with mean ids alone every table has 1,000 rows.
    """
    if num_embeddings is None:
        pooling = DEFAULT_POOLING if pooling_factors is None else tuple(pooling_factors)
        rows: Sequence[int] = (DEFAULT_ROWS,) * len(pooling)
    else:
        rows = num_embeddings
        pooling = (1.0,) * len(rows) if pooling_factors is None else tuple(pooling_factors)
    sparse = tuple(
        SparseColumn(f"sparse_{index}", Encoding.IDENTITY, None, int(count), float(factor))
        for index, (count, factor) in enumerate(zip(rows, pooling, strict=True))
    )
    dense = tuple(DenseColumn(f"dense_{index}") for index in range(data.num_dense))
    return DataSchema(dense, sparse, f"synthetic-{seed}-{data.zipf_exponent}", data.num_samples, folder)


@dataclass(frozen=True)
class SyntheticRows:
    """Samples that are not made yet.

    Attributes:
        numbers: ``[n]`` number of each sample within its split.
    """

    numbers: Positions

    def __len__(self) -> int:
        return int(self.numbers.size)

    def take(self, positions: Positions) -> "SyntheticRows":
        """Return the samples at these positions, in this order."""
        return SyntheticRows(self.numbers[positions])

    def slice(self, start: int, stop: int) -> "SyntheticRows":
        """Return a range of the samples, without a copy."""
        return SyntheticRows(self.numbers[start:stop])

    def append(self, more: Sequence["SyntheticRows"]) -> "SyntheticRows":
        """Return these samples followed by ``more``."""
        return SyntheticRows(np.concatenate([self.numbers, *(rows.numbers for rows in more)]))


class SyntheticReader:
    """The samples of one split, by number; ``Reader`` describes the methods."""

    def __init__(self, data: DataSpec, split: Split) -> None:
        self._data = data
        self._split = split

    def num_samples(self) -> int | None:
        """Return the number of samples."""
        return self._data.num_samples if self._split is Split.TRAIN else self._data.val_samples

    def blocks(
        self, *, order: np.random.Generator | None, limit: int | None, raw: bool = False
    ) -> Iterator[SyntheticRows]:
        """Yield the numbers of the samples; they are independent of each other, so their order stays."""
        del order, raw
        total = self.num_samples() or 0
        total = total if limit is None else min(total, limit)
        for first in range(0, total, _BLOCK_ROWS):
            yield SyntheticRows(np.arange(first, min(first + _BLOCK_ROWS, total), dtype=np.int64))

    def place(self, rows: SyntheticRows, position: int) -> str:
        """Return the sample's number."""
        return f"generated {self._split} sample {rows.numbers[position]}"

    def encoder(self, schema: DataSchema, *, seed: int) -> "SyntheticEncoder":
        """Return what makes the samples."""
        return SyntheticEncoder(self._data, schema, split=self._split, seed=seed)


class SyntheticEncoder:
    """Makes samples from their numbers."""

    def __init__(self, data: DataSpec, schema: DataSchema, *, split: Split, seed: int) -> None:
        self._seed = seed
        self._split = 0 if split is Split.TRAIN else 1
        self._pooling = [column.pooling_factor for column in schema.sparse]
        self._features = [
            _Feature(seed, index, column.num_embeddings, data.zipf_exponent)
            for index, column in enumerate(schema.sparse)
        ]
        directions = np.array([uniform(self._key(_Stream.TEACHER_DENSE, d)) - 0.5 for d in range(len(schema.dense))])
        norm = float(np.linalg.norm(directions))
        self._directions = directions if norm == 0 else directions * (_DENSE_SIGNAL / norm)

    def encode(self, rows: SyntheticRows) -> Samples:
        """Return the samples with these numbers."""
        samples, probabilities = self.make(rows)
        del probabilities
        return samples

    def make(self, rows: SyntheticRows) -> tuple[Samples, NDArray[np.float64]]:
        """Return the samples with these numbers, and ``[B]`` the teacher's probability of label 1 for each."""
        numbers = rows.numbers.view(np.uint64)
        dense = self._dense(numbers)
        logits = dense @ self._directions + _BIAS
        lengths = np.empty((len(self._features), numbers.size), dtype=np.int64)
        values = []
        for index, feature in enumerate(self._features):
            lengths[index] = self._lengths(numbers, index)
            ids, effects = feature.draw(self._ids(numbers, index, lengths[index]))
            values.append(ids)
            effect = _sum_bags(effects, lengths[index])
            logits += effect * (_TABLE_SIGNAL / np.sqrt(len(self._features) * self._pooling[index]))
        probabilities = 1.0 / (1.0 + np.exp(-logits))
        draws = uniform(mix(numbers + self._stream(_Stream.LABEL, 0)))
        samples = Samples(
            dense=dense.astype(np.float32),
            labels=(draws < probabilities).astype(np.float32),
            num_features=len(self._features),
            lengths=lengths,
            values=np.concatenate(values) if values else np.empty(0, dtype=np.int64),
            weights=None,
        )
        return samples, probabilities

    def _dense(self, numbers: Hashes) -> NDArray[np.float64]:
        """Return ``[B, D]`` numbers of mean 0 and deviation 1, nearly normal: each a sum of four 16-bit ones."""
        columns = np.empty((self._directions.size, numbers.size), dtype=np.float64)
        for index in range(self._directions.size):
            hashes = mix(numbers + self._stream(_Stream.DENSE, index))
            halves = (hashes & _EVEN_QUARTERS) + ((hashes >> np.uint64(16)) & _EVEN_QUARTERS)
            columns[index] = (halves & _LOW_HALF) + (halves >> np.uint64(32))
        columns = (columns + 2.0) * (2.0**-16) - 2.0
        columns *= np.sqrt(3.0)
        return np.ascontiguousarray(columns.T)

    def _lengths(self, numbers: Hashes, index: int) -> Positions:
        """Return ``[B]`` bag lengths: uniform between 1 and twice the mean less 1; below a mean of 1, 0 or 1."""
        mean = self._pooling[index]
        if mean == 1.0:
            return np.ones(numbers.size, dtype=np.int64)
        draws = uniform(mix(numbers + self._stream(_Stream.LENGTH, index)))
        if mean < 1.0:
            return (draws < mean).astype(np.int64)
        whole, rest = divmod(2.0 * (mean - 1.0), 1.0)
        choice = uniform(mix(numbers + self._stream(_Stream.LENGTH, -1 - index)))
        widths = whole + 1.0 + (choice < rest)
        return 1 + (draws * widths).astype(np.int64)

    def _ids(self, numbers: Hashes, index: int, lengths: Positions) -> NDArray[np.float64]:
        """Return ``[n]`` uniform numbers, one per id of a feature."""
        hashes = mix(numbers + self._stream(_Stream.ID, index))
        if self._pooling[index] != 1.0:
            starts = np.cumsum(lengths) - lengths
            within = np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths)
            hashes = mix(np.repeat(hashes, lengths) + within.view(np.uint64))
        return uniform(hashes)

    def _stream(self, stream: _Stream, index: int) -> np.uint64:
        return combine(self._seed, self._split, stream, index)

    def _key(self, stream: _Stream, index: int) -> Hashes:
        return np.array(combine(self._seed, stream, index))


class _Feature:
    """Popularity and effect of the ids of one feature."""

    def __init__(self, seed: int, index: int, num_rows: int, exponent: float) -> None:
        self._num_rows = num_rows
        self._exponent = exponent
        self._key = combine(seed, _Stream.TEACHER_ROW, index)
        self._factor = _coprime(num_rows, combine(seed, _Stream.PERMUTATION, index))
        self._shift = np.uint64(int(combine(seed, _Stream.PERMUTATION, -1 - index)) % num_rows)
        self._mean, self._deviation = 0.0, 1.0
        effects = self._effects(self._ranks((np.arange(_GRID) + 0.5) / _GRID))
        self._mean = float(effects.mean())
        self._deviation = float(effects.std()) or 1.0

    def draw(self, draws: NDArray[np.float64]) -> tuple[Positions, NDArray[np.float64]]:
        """Return ``[n]`` ids for uniform numbers, and the effect of each on the logit (mean 0, deviation 1)."""
        ranks = self._ranks(draws)
        ids = ((ranks * self._factor + self._shift) % np.uint64(self._num_rows)).view(np.int64)
        return ids, self._effects(ranks)

    def _ranks(self, draws: NDArray[np.float64]) -> Hashes:
        """Return ``[n]`` ranks, 0 the most popular, by the inverse of the continuous Zipf distribution."""
        power = 1.0 - self._exponent
        if power == 0.0:
            found = np.power(float(self._num_rows), draws)
        else:
            found = ((float(self._num_rows) ** power - 1.0) * draws + 1.0) ** (1.0 / power)
        return np.minimum(found.astype(np.uint64), np.uint64(self._num_rows)) - np.uint64(1)

    def _effects(self, ranks: Hashes) -> NDArray[np.float64]:
        effects = 2.0 * uniform(mix(ranks + self._key)) - 1.0
        effects /= 1.0 + ranks.astype(np.float64) / _EFFECT_RANKS
        return (effects - self._mean) / self._deviation


def _coprime(num_rows: int, key: np.uint64) -> np.uint64:
    """Return a factor that permutes the numbers below ``num_rows`` and keeps products below 2^64."""
    limit = min(num_rows, (2**64 - 1) // (num_rows + 1))
    factor = max(1, int(key) % max(1, limit))
    while gcd(factor, num_rows) != 1:
        factor -= 1
    return np.uint64(factor)


def _sum_bags(effects: NDArray[np.float64], lengths: Positions) -> NDArray[np.float64]:
    if effects.size == lengths.size and bool((lengths == 1).all()):
        return effects
    sums = np.zeros(effects.size + 1, dtype=np.float64)
    np.cumsum(effects, out=sums[1:])
    ends = np.cumsum(lengths)
    return np.asarray(sums[ends] - sums[ends - lengths])


@dataclass(frozen=True)
class Attainable:
    """What nobody can beat on generated validation samples: the quality of the teacher's own probabilities.

    Attributes:
        auc: Area under the ROC curve.
        ne: Normalized entropy: log loss over the entropy of the mean label.
    """

    auc: float
    ne: float


def attainable_quality(data: DataSpec, schema: DataSchema, *, seed: int) -> Attainable | None:
    """Return the teacher's quality on the validation samples, None if there are none or only one class.

    The AUC is taken from 2^20 bins of the probability, so that memory does not grow with the samples.
    """
    reader = SyntheticReader(data, Split.VAL)
    encoder = reader.encoder(schema, seed=seed)
    ones, zeros = np.zeros(_BINS, dtype=np.int64), np.zeros(_BINS, dtype=np.int64)
    loss = 0.0
    for rows in reader.blocks(order=None, limit=None):
        samples, probabilities = encoder.make(rows)
        labels = samples.labels > 0.5
        bins = np.minimum((probabilities * _BINS).astype(np.int64), _BINS - 1)
        ones += np.bincount(bins[labels], minlength=_BINS)
        zeros += np.bincount(bins[~labels], minlength=_BINS)
        loss -= float(np.log(np.where(labels, probabilities, 1.0 - probabilities)).sum())
    num_ones, num_zeros = int(ones.sum()), int(zeros.sum())
    if num_ones == 0 or num_zeros == 0:
        return None
    below = np.cumsum(zeros) - zeros
    auc = float((ones * (below + 0.5 * zeros)).sum() / (num_ones * num_zeros))
    total = num_ones + num_zeros
    rate = num_ones / total
    entropy = -(rate * np.log(rate) + (1.0 - rate) * np.log(1.0 - rate))
    return Attainable(auc=auc, ne=float(loss / total / entropy))
