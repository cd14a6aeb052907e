"""Vectorised 64-bit hashes of integers and texts: equal on every platform, in every process and run.

Two different texts share a hash with probability 2^-64; integers never do. Texts that do share one share a row.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_WORD = 8


def mix(values: Hashes) -> Hashes:
    """Scramble each value by the finalizer of splitmix64, a bijection on 64 bits.

    Source: Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.
    """
    mixed = values ^ (values >> np.uint64(30))
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def combine(seed: int, *keys: int) -> np.uint64:
    """Return one 64-bit key made of whole numbers, to start a stream of random numbers with."""
    state = np.array([seed & (2**64 - 1)], dtype=np.uint64)
    for key in keys:
        state = mix(state + _GOLDEN) ^ mix(np.array([key & (2**64 - 1)], dtype=np.uint64) + _GOLDEN)
    return np.uint64(mix(state + _GOLDEN)[0])


def hash_integers(values: NDArray[np.int64]) -> Hashes:
    """Hash ``[n]`` whole numbers; different numbers have different hashes."""
    return mix(values.view(np.uint64) + _GOLDEN)


def uniform(hashes: Hashes) -> NDArray[np.float64]:
    """Turn hashes into numbers in (0, 1), 53 bits each."""
    return (np.asarray(hashes >> np.uint64(11), dtype=np.float64) + 0.5) * 2.0**-53


def hash_texts(array: Any) -> Hashes:
    """Hash ``[n]`` texts of an Arrow string or binary array by their bytes; what is null gets the hash of ''."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    if len(array) == 0:
        return np.empty(0, dtype=np.uint64)
    buffers = array.buffers()
    stored = np.frombuffer(buffers[1], dtype=np.int64 if large else np.int32)
    offsets = stored[array.offset : array.offset + len(array) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    text = np.zeros(last - first + _WORD, dtype=np.uint8)
    if last > first:
        text[: last - first] = np.frombuffer(buffers[2], dtype=np.uint8)[first:last]
    return _hash_spans(text, offsets[:-1] - first, np.diff(offsets))


def _hash_spans(text: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    """Hash ``text[start : start + length]``, eight bytes at a time; 8 spare bytes follow the text."""
    words = np.ndarray((text.size - _WORD + 1,), dtype="<u8", buffer=text.data, strides=(1,))
    hashes = mix(lengths.view(np.uint64) + _GOLDEN)
    rest, at, where = lengths, starts, None
    while True:
        word = words[at].astype(np.uint64, copy=False)
        word &= _MASKS[np.minimum(rest, _WORD)]
        if where is None:
            hashes = mix((hashes ^ word) + _GOLDEN)
        else:
            hashes[where] = mix((hashes[where] ^ word) + _GOLDEN)
        longer = np.flatnonzero(rest > _WORD)
        if longer.size == 0:
            return hashes
        where = longer if where is None else where[longer]
        rest, at = rest[longer] - _WORD, at[longer] + _WORD


_MASKS = np.array([2 ** (8 * count) - 1 for count in range(_WORD + 1)], dtype=np.uint64)


class HashIndex:
    """The position of a hash in a sorted array of distinct hashes, found in expected constant time.

    The leading bits of a hash choose a bucket of about half an entry, so that a lookup reads about two entries.

    Args:
        hashes: ``[n]`` distinct hashes in rising order.
    """

    def __init__(self, hashes: Hashes) -> None:
        self._hashes = hashes
        bits = max(1, int(hashes.size).bit_length())
        self._shift = np.uint64(64 - bits)
        bounds = np.arange(2**bits, dtype=np.uint64) << self._shift
        self._starts: NDArray[np.int64] = np.searchsorted(hashes, bounds).astype(np.int64)

    def find(self, hashes: Hashes) -> NDArray[np.int64]:
        """Return ``[m]`` positions, -1 for a hash that is not there."""
        last = self._hashes.size - 1
        if last < 0:
            return np.full(hashes.shape, -1, dtype=np.int64)
        at = self._starts[(hashes >> self._shift).astype(np.int64)]
        found = self._hashes[np.minimum(at, last)]
        behind = np.flatnonzero((found < hashes) & (at < last))
        while behind.size:
            at[behind] += 1
            found[behind] = self._hashes[at[behind]]
            behind = behind[(found[behind] < hashes[behind]) & (at[behind] < last)]
        at[found != hashes] = -1
        return at
