"""The hash as docs/serving.md states it, in plain Python, is the one that readers use."""

import pyarrow as pa
import pytest

from neo.data.hashing import hash_integers, hash_texts

GOLDEN, ALL = 0x9E3779B97F4A7C15, 2**64 - 1


def mix(h: int) -> int:
    h &= ALL
    h ^= h >> 30
    h = h * 0xBF58476D1CE4E5B9 & ALL
    h ^= h >> 27
    h = h * 0x94D049BB133111EB & ALL
    return h ^ h >> 31


def text_hash(text: bytes) -> int:
    h = mix(len(text) + GOLDEN)
    for at in range(0, max(len(text), 1), 8):
        h = mix((h ^ int.from_bytes(text[at : at + 8].ljust(8, b"\0"), "little")) + GOLDEN)
    return h


@pytest.mark.parametrize("text", [b"", b"a", b"68fd1e64", b"68fd1e641", "größer als acht".encode(), b"x" * 40])
def test_texts(text: bytes) -> None:
    assert int(hash_texts(pa.array([text]))[0]) == text_hash(text)


@pytest.mark.parametrize("number", [0, 1, -1, 2**62])
def test_whole_numbers(number: int) -> None:
    found = hash_integers(pa.array([number], pa.int64()).to_numpy())
    assert int(found[0]) == mix(number + GOLDEN)
