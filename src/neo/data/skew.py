"""How unevenly ids occur, torch-free: a histogram by frequency rank, and the Zipf exponent that fits it best."""

import numpy as np
from numpy.typing import NDArray

_EXACT_RANKS = 16
_BUCKETS_PER_DOUBLING = 4
_LARGEST_EXPONENT = 8.0


def rank_ends(num_ranks: int) -> NDArray[np.int64]:
    """Return the last rank of each bucket: one for each of the first 16 ranks, then four for every doubling."""
    ends = list(range(1, min(num_ranks, _EXACT_RANKS) + 1))
    while ends and ends[-1] < num_ranks:
        ends.append(min(num_ranks, max(ends[-1] + 1, round(ends[-1] * 2 ** (1 / _BUCKETS_PER_DOUBLING)))))
    return np.array(ends, dtype=np.int64)


def rank_histogram(
    counts: NDArray[np.int64], num_ranks: int, total: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the last rank of each bucket, and how often the ids in it occur.

    Args:
        counts: Counts of the most frequent ids, largest first.
        num_ranks: Distinct ids in all; those without a count of their own share what is left of ``total`` evenly.
        total: Occurrences in all.
    """
    num_ranks = max(num_ranks, counts.size)
    ends = rank_ends(num_ranks)
    known = np.concatenate([[0.0], np.cumsum(counts)])
    inside = known[np.minimum(ends, counts.size)]
    tail = np.maximum(ends - counts.size, 0)
    rest = max(0.0, total - known[-1])
    reached = inside + (tail / max(1, num_ranks - counts.size)) * rest
    return ends, np.diff(np.round(reached).astype(np.int64), prepend=0)


def zipf_exponent(ends: NDArray[np.int64], counts: NDArray[np.int64]) -> float | None:
    """Return the exponent s by which weights rank^-s fit a histogram best, None for fewer than two ranks.

    The maximum of the likelihood, found by bisection: the mean of log rank under s equals the one that was seen.
    A histogram of few samples looks steeper than what they were drawn from, since it is sorted by what was drawn.
    """
    if ends.size < 2 or counts.sum() == 0:
        return None
    starts = np.concatenate([[0], ends[:-1]])
    widths = (ends - starts).astype(np.float64)
    logs = np.log((starts + 1 + ends) / 2.0)
    seen = float((counts * logs).sum() / counts.sum())

    def mean_log(exponent: float) -> float:
        weights = widths * np.exp(-exponent * logs)
        return float((weights * logs).sum() / weights.sum())

    low, high = 0.0, _LARGEST_EXPONENT
    if mean_log(low) <= seen:
        return 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_log(middle) > seen else (low, middle)
    return round((low + high) / 2, 4)
