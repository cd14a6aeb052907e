"""Statistics that are learned in one pass, torch-free, in float64: mean and deviation, and the ids that occur."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from neo.data.columns import Place, to_hashes, to_integers
from neo.data.hashing import Hashes, HashIndex
from neo.data.schema import Vocabulary

_FEWEST_PENDING = 262_144


class Moments:
    """Mean and standard deviation of a stream of numbers; NaN is left out.

    Source: Chan, Golub, LeVeque: Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979.
    """

    def __init__(self) -> None:
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0

    def add(self, values: NDArray[np.float64]) -> None:
        """Take ``[n]`` numbers into account."""
        known = values[~np.isnan(values)]
        if known.size == 0:
            return
        mean = float(known.mean())
        squares = float(np.square(known - mean).sum())
        total = self._count + known.size
        shift = mean - self._mean
        self._squares += squares + shift * shift * self._count * known.size / total
        self._mean += shift * known.size / total
        self._count = total

    @property
    def mean(self) -> float:
        """The mean; 0 of nothing."""
        return self._mean

    @property
    def deviation(self) -> float:
        """The standard deviation (of the population); 1 where all numbers are equal."""
        if self._count == 0:
            return 1.0
        deviation = float(np.sqrt(self._squares / self._count))
        tiny = 1e-12 * abs(self._mean)
        return deviation if deviation > tiny else 1.0


class VocabularyBuilder:
    """Collects the distinct ids of a column; memory grows with their number, not with the rows read."""

    def __init__(self) -> None:
        self._hashes: Hashes = np.empty(0, dtype=np.uint64)
        self._counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._ids: Any = None
        self._index = HashIndex(self._hashes)
        self._new_hashes: list[Hashes] = []
        self._new_counts: list[NDArray[np.int64]] = []
        self._new_ids: list[Any] = []
        self._pending = 0

    def add(self, ids: Any, column: str, place: Place) -> None:
        """Take an Arrow array of ids into account; null is no id.

        Raises:
            DataError: An id is neither a whole number nor a text.
        """
        distinct, counts = distinct_ids(ids, column, place)
        hashes, missing = to_hashes(distinct, column, place)
        if missing is not None:
            counts[missing] = 0
        found = self._index.find(hashes)
        new = (found < 0) & (counts > 0)
        self._counts[found[found >= 0]] += counts[found >= 0]
        if not new.any():
            return
        at = np.flatnonzero(new)
        self._new_hashes.append(hashes[at])
        self._new_counts.append(counts[at])
        self._new_ids.append(distinct.take(pa.array(at)))
        self._pending += at.size
        if self._pending > max(_FEWEST_PENDING, self._hashes.size // 2):
            self._merge()

    def finish(self, min_count: int = 1) -> Vocabulary:
        """Return the ids that occur so often, ordered by their hashes: whatever the order in which they were read."""
        self._merge()
        ids = pa.array([], pa.string()) if self._ids is None else self._ids
        if min_count <= 1:
            return Vocabulary(self._hashes, ids)
        kept = np.flatnonzero(self._counts >= min_count)
        return Vocabulary(self._hashes[kept], ids.take(pa.array(kept)))

    def _merge(self) -> None:
        if not self._new_hashes:
            return
        known = [] if self._ids is None else [self._ids]
        ids = pa.concat_arrays(_same_type([*known, *self._new_ids]))
        hashes, first, place = np.unique(
            np.concatenate([self._hashes, *self._new_hashes]), return_index=True, return_inverse=True
        )
        counts = np.zeros(hashes.size, dtype=np.int64)
        np.add.at(counts, place, np.concatenate([self._counts, *self._new_counts]))
        self._hashes, self._counts, self._ids = hashes, counts, ids.take(pa.array(first))
        self._index = HashIndex(hashes)
        self._new_hashes, self._new_counts, self._new_ids, self._pending = [], [], [], 0


def distinct_ids(ids: Any, column: str, place: Place) -> tuple[Any, NDArray[np.int64]]:
    """Return each id once, as whole numbers or texts, and how often it occurs; fractions are checked in place."""
    if pa.types.is_dictionary(ids.type):
        occurring = np.bincount(ids.indices.drop_null().to_numpy(zero_copy_only=False), minlength=1)
        at = np.flatnonzero(occurring)
        return ids.dictionary.take(pa.array(at)), occurring[at]
    if pa.types.is_floating(ids.type):
        values, missing = to_integers(ids, column, place)
        ids = pa.array(values, mask=missing)
    counted = pc.value_counts(ids)
    return counted.field("values"), np.array(counted.field("counts"), dtype=np.int64)


def _same_type(arrays: list[Any]) -> list[Any]:
    """Widen whole numbers to int64, so that files may differ in their width, and texts likewise."""
    numbers = all(pa.types.is_integer(array.type) or pa.types.is_boolean(array.type) for array in arrays)
    return [pc.cast(array, pa.int64() if numbers else pa.large_string(), safe=False) for array in arrays]
