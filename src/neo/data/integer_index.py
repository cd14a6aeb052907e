"""Rows of whole numbers that lie close together: an array with one entry for every number between the ends."""

from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_FREE_ENTRIES = 65_536
_ENTRIES_PER_ID = 8


class IntegerIndex:
    """The row of a whole number, found by one look into an array.

    Args:
        smallest: The smallest known number.
        rows: ``[largest - smallest + 2]`` row of each number from there on; the last is that of every other number.
    """

    def __init__(self, smallest: int, rows: NDArray[np.int64]) -> None:
        self._smallest = np.uint64(smallest % 2**64)
        self._rows = rows

    @classmethod
    def of(cls, ids: Any, *, first: int, absent: int) -> Self | None:
        """Return the index of an Arrow array of distinct ids, None if they lie too far apart for one.

        Args:
            ids: The id at position p has row ``first + p``.
            first: Row of the first.
            absent: Row of what is not among them.
        """
        if len(ids) == 0 or not (pa.types.is_integer(ids.type) or pa.types.is_boolean(ids.type)):
            return None
        known = ids.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False)
        smallest, largest = int(known.min()), int(known.max())
        span = largest - smallest + 1
        if span > _FREE_ENTRIES + _ENTRIES_PER_ID * known.size:
            return None
        rows = np.full(span + 1, absent, dtype=np.int64)
        rows[known - smallest] = first + np.arange(known.size)
        return cls(smallest, rows)

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return ``[n]`` rows of ``[n]`` whole numbers."""
        places = ids.view(np.uint64) - self._smallest  # what lies below it wraps round to a huge number
        np.minimum(places, np.uint64(self._rows.size - 1), out=places)
        found: NDArray[np.int64] = self._rows.take(places.view(np.int64))
        return found
