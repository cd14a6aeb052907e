import numpy as np
import pytest

from neo.data.hashing import hash_integers
from neo.data.sketches import DistinctEstimate, DuplicateSample, IdCounter


@pytest.mark.parametrize("count", [0, 1, 100, 20_000, 1_000_000])
def test_distinct_values_are_estimated(count: int) -> None:
    estimate = DistinctEstimate()
    hashes = hash_integers(np.arange(count))
    estimate.add(hashes)
    estimate.add(hashes[: count // 2])
    assert estimate.value() == pytest.approx(count, rel=4 * 0.0081)  # four standard errors


def _stream() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.floor(50_000 ** rng.random(5000)).astype(np.int64) for _ in range(20)]


@pytest.mark.parametrize("capacity", [100_000, 2000])
def test_counts_are_exact_or_too_low_by_no_more_than_said(capacity: int) -> None:
    counter = IdCounter(capacity)
    parts = _stream()
    for part in parts:
        ids, counts = np.unique(part, return_counts=True)
        counter.add(hash_integers(ids), counts)
    true = np.bincount(np.concatenate(parts))
    distinct = int(np.count_nonzero(true))
    kept = counter.counts()
    assert counter.total == 100_000
    if capacity > distinct:
        assert counter.is_exact and counter.most_missed == 0
        assert counter.num_distinct == distinct
        assert kept.tolist() == np.sort(true[true > 0])[::-1].tolist()
        return
    assert not counter.is_exact
    assert counter.num_distinct == pytest.approx(distinct, rel=4 * 0.0081)
    by_hash = dict(zip(hash_integers(np.arange(true.size)).tolist(), true.tolist(), strict=True))
    assert 0 < counter.most_missed < 100
    for word, count in zip(counter._hashes.tolist(), counter._counts.tolist(), strict=True):
        assert by_hash[word] - counter.most_missed <= count <= by_hash[word]
    assert kept[:50].tolist() == np.sort(true)[::-1][:50].tolist()  # what is frequent is never forgotten


def test_share_of_duplicates() -> None:
    exact, sampled = DuplicateSample(), DuplicateSample(capacity=2000)
    values = hash_integers(np.arange(80_000))
    for sample in (exact, sampled):
        for part in np.array_split(np.concatenate([values, values[:20_000]]), 7):
            sample.add(part)
    assert exact.is_exact and exact.share == pytest.approx(0.2)
    assert not sampled.is_exact
    assert sampled.share == pytest.approx(0.2, abs=0.05)
    assert DuplicateSample().share == 0.0
