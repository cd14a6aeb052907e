import numpy as np
import pyarrow as pa
import pytest

from neo.data.hashing import HashIndex, combine, hash_integers, hash_texts, mix, uniform


def test_hashes_are_equal_on_every_platform_and_run() -> None:
    assert mix(np.array([1], dtype=np.uint64))[0] == 0x5692161D100B05E5
    assert hash_integers(np.array([0, -1], dtype=np.int64)).tolist() == [0xE220A8397B1DCDAF, 0xE4D971771B652C20]
    texts = ["", "a", "05db9164", "a text of 26 characters, x"]
    known = [0xA706DD2F4D197E6F, 0x5E025F9ADE9EAF3E, 0x24584DD6B64D5666, 0x78CAE4B08A352C3E]
    assert hash_texts(pa.array(texts)).tolist() == known
    assert hash_texts(pa.array(texts, pa.large_string())).tolist() == known


def test_texts_differ_by_content_and_length_only() -> None:
    texts = ["", "a", "b", "ab", "a\0", "aaaaaaaa", "aaaaaaaa\0", "aaaaaaaab", "baaaaaaaa", "x" * 100, "x" * 101]
    hashes = hash_texts(pa.array(texts))
    assert len(set(hashes.tolist())) == len(texts)
    mixed = pa.array(["zz", *texts, "zz"]).slice(1, len(texts))
    assert (hash_texts(mixed) == hashes).all()
    assert (hash_texts(pa.array(texts[::-1]))[::-1] == hashes).all()
    assert hash_texts(pa.array([], pa.string())).size == 0


def test_numbers_of_hashes_are_uniform() -> None:
    draws = uniform(hash_integers(np.arange(100_000)))
    assert draws.min() > 0
    assert draws.max() < 1
    assert draws.mean() == pytest.approx(0.5, abs=0.005)  # 5 standard errors
    counts = np.bincount((draws * 10).astype(int))
    assert counts.min() > 9_500
    assert combine(0, 1, 2) != combine(0, 2, 1) != combine(1, 2, 1)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 100, 5000])
def test_index_finds_every_hash_and_nothing_else(size: int) -> None:
    known = np.unique(hash_integers(np.arange(size)))
    index = HashIndex(known)
    assert (index.find(known) == np.arange(size)).all()
    assert (index.find(hash_integers(np.arange(size, size + 1000))) == -1).all()
    edges = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert (index.find(edges) == -1).all()
    assert (HashIndex(np.sort(np.concatenate([known, edges]))).find(edges) == [0, size + 1]).all()
