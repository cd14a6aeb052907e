"""Statistics that are learned in one pass, torch-free, in float64: mean and deviation, and the ids that occur."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from neo.data.columns import Place, to_hashes
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
        self._ids: Any = None
        self._index = HashIndex(self._hashes)
        self._new_hashes: list[Hashes] = []
        self._new_ids: list[Any] = []
        self._pending = 0

    def add(self, ids: Any, column: str, place: Place) -> None:
        """Take an Arrow array of ids into account; null is no id.

        Raises:
            DataError: An id is neither a whole number nor a text.
        """
        hashes, missing = to_hashes(ids, column, place)
        new = self._index.find(hashes) < 0
        if missing is not None:
            new &= ~missing
        if not new.any():
            return
        at = np.flatnonzero(new)
        distinct, first = np.unique(hashes[at], return_index=True)
        self._new_hashes.append(distinct)
        self._new_ids.append(_without_dictionary(ids.take(pa.array(at[first]))))
        self._pending += distinct.size
        if self._pending > max(_FEWEST_PENDING, self._hashes.size // 2):
            self._merge()

    def finish(self) -> Vocabulary:
        """Return the known ids, ordered by their hashes: whatever the order in which they were read."""
        self._merge()
        return Vocabulary(self._hashes, pa.array([], pa.string()) if self._ids is None else self._ids)

    def _merge(self) -> None:
        if not self._new_hashes:
            return
        known = [] if self._ids is None else [self._ids]
        ids = pa.concat_arrays(_same_type([*known, *self._new_ids]))
        hashes, first = np.unique(np.concatenate([self._hashes, *self._new_hashes]), return_index=True)
        self._hashes, self._ids = hashes, ids.take(pa.array(first))
        self._index = HashIndex(hashes)
        self._new_hashes, self._new_ids, self._pending = [], [], 0


def _without_dictionary(ids: Any) -> Any:
    return ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids


def _same_type(arrays: list[Any]) -> list[Any]:
    """Widen whole numbers to int64, so that files may differ in their width."""
    numbers = [pa.types.is_integer(array.type) or pa.types.is_floating(array.type) for array in arrays]
    numbers = [given or pa.types.is_boolean(array.type) for given, array in zip(numbers, arrays, strict=True)]
    wide = pa.int64() if all(numbers) else pa.large_string()
    return [pc.cast(array, wide, safe=False) for array in arrays]
