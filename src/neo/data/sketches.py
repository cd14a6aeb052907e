"""Statistics of unbounded streams in bounded memory, torch-free: counts of ids, distinct values, duplicates.

Shapes: n hashes.
"""

import numpy as np
from numpy.typing import NDArray

from neo.data.hashing import Hashes

_INDEX_BITS = 14
_REST_BITS = 64 - _INDEX_BITS


class DistinctEstimate:
    """How many distinct hashes there are, in 16 KiB; the standard error is 0.8 % (1.04 / sqrt(16,384)).

    Source: Flajolet, Fusy, Gandouet, Meunier: HyperLogLog, 2007, with linear counting for small numbers.
    """

    def __init__(self) -> None:
        self._registers = np.zeros(2**_INDEX_BITS, dtype=np.int64)

    def add(self, hashes: Hashes) -> None:
        """Take ``[n]`` hashes into account."""
        index = (hashes >> np.uint64(_REST_BITS)).astype(np.int64)
        rest = hashes & np.uint64(2**_REST_BITS - 1)
        lengths = np.frexp(rest.astype(np.float64))[1]  # bits up to the leading one; exact below 2^53
        np.maximum.at(self._registers, index, _REST_BITS - lengths + 1)

    def value(self) -> float:
        """Return the estimate."""
        size = self._registers.size
        estimate = 0.7213 / (1 + 1.079 / size) * size * size / float(np.exp2(-self._registers.astype(np.float64)).sum())
        empty = int(np.count_nonzero(self._registers == 0))
        return size * float(np.log(size / empty)) if estimate <= 2.5 * size and empty else estimate


class IdCounter:
    """How often each id occurs, exactly up to ``capacity`` distinct ids; beyond it the rarest are forgotten.

    Args:
        capacity: Ids that are kept.

    Source: Manku, Motwani: Approximate Frequency Counts over Data Streams, 2002 (the bound on what is forgotten).
    """

    def __init__(self, capacity: int = 2**18) -> None:
        self._capacity = capacity
        self._hashes: Hashes = np.empty(0, dtype=np.uint64)
        self._counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._new: list[tuple[Hashes, NDArray[np.int64]]] = []
        self._pending = 0
        self._estimate: DistinctEstimate | None = None
        self.total = 0
        self.most_missed = 0
        """The most by which the count of an id can be too low."""

    def add(self, hashes: Hashes, counts: NDArray[np.int64]) -> None:
        """Take ``[n]`` ids that occurred ``[n]`` more times into account."""
        self.total += int(counts.sum())
        if self._estimate is not None:
            self._estimate.add(hashes)
        self._new.append((hashes, counts))
        self._pending += hashes.size
        if self._pending > self._capacity:
            self._merge()

    def _merge(self) -> None:
        if not self._new:
            return
        hashes, place = np.unique(np.concatenate([self._hashes, *(new for new, _ in self._new)]), return_inverse=True)
        counts = np.zeros(hashes.size, dtype=np.int64)
        np.add.at(counts, place, np.concatenate([self._counts, *(new for _, new in self._new)]))
        self._new, self._pending = [], 0
        if hashes.size > self._capacity:
            if self._estimate is None:
                self._estimate = DistinctEstimate()
                self._estimate.add(hashes)
            order = np.argpartition(counts, hashes.size - self._capacity)
            self.most_missed += int(counts[order[: hashes.size - self._capacity]].max())
            kept = np.sort(order[hashes.size - self._capacity :])
            hashes, counts = hashes[kept], counts[kept]
        self._hashes, self._counts = hashes, counts

    def counts(self) -> NDArray[np.int64]:
        """Return the counts of the ids that are kept, largest first."""
        self._merge()
        return np.sort(self._counts)[::-1]

    @property
    def is_exact(self) -> bool:
        """Whether no id was forgotten."""
        self._merge()
        return self._estimate is None

    @property
    def num_distinct(self) -> int:
        """Distinct ids; an estimate where some were forgotten."""
        self._merge()
        return int(self._hashes.size) if self._estimate is None else round(self._estimate.value())


class DuplicateSample:
    """The share of values that repeat an earlier one, from a sample of the distinct values by their hash.

    Args:
        capacity: Distinct values that are kept; with no more than that the share is exact.

    Source: Gibbons: Distinct Sampling for Highly-Accurate Answers to Distinct Values Queries, 2001.
    """

    def __init__(self, capacity: int = 2**18) -> None:
        self._capacity = capacity
        self._level = 0  # a value is sampled if the lowest bits of its hash, so many, are zero
        self._hashes: Hashes = np.empty(0, dtype=np.uint64)
        self._counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def add(self, hashes: Hashes) -> None:
        """Take ``[n]`` values into account."""
        new = hashes[self._sampled(hashes)]
        both = np.concatenate([self._hashes, new])
        counts = np.concatenate([self._counts, np.ones(new.size, dtype=np.int64)])
        self._hashes, place = np.unique(both, return_inverse=True)
        self._counts = np.zeros(self._hashes.size, dtype=np.int64)
        np.add.at(self._counts, place, counts)
        while self._hashes.size > self._capacity:
            self._level += 1
            kept = self._sampled(self._hashes)
            self._hashes, self._counts = self._hashes[kept], self._counts[kept]

    def _sampled(self, hashes: Hashes) -> NDArray[np.bool_]:
        sampled: NDArray[np.bool_] = (hashes & np.uint64(2**self._level - 1)) == 0
        return sampled

    @property
    def share(self) -> float:
        """The share of repeated values; 0 of nothing."""
        total = int(self._counts.sum())
        return 1.0 - self._hashes.size / total if total else 0.0

    @property
    def is_exact(self) -> bool:
        """Whether every value is in the sample."""
        return self._level == 0
