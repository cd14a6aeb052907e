"""Several ids per sample out of one, by a fixed rule, torch-free: as MLPerf's multi-hot Criteo data is made.

Source: MLCommons, DLRM-DCNv2 reference: the first id of a bag is the given one, and the others are fixed by it, drawn
evenly from its table. Here the draw is a hash, so that nothing is stored and every rank and run has the same bags.

Shapes: n given ids, p ids per bag.
"""

import numpy as np
import pyarrow as pa

from neo.data.hashing import combine, hash_integers, hash_texts, mix
from neo.data.reader import Positions

_SEED = 20_450  # part of the rule: another seed is another data set


class FixedBags:
    """Bags of one feature: p ids for every given one.

    Position 0 holds the given row r; position j holds ``first + mix(hash(r) ^ key(feature, j)) mod (stop - first)``.

    Args:
        feature: Name of the feature.
        first: First row that is drawn: rows of missing and unseen ids are not.
        stop: The row after the last that is drawn.
        num_embeddings: Rows of the table; what lies outside stays the only row of its bag.
        pooling_factor: p.
    """

    def __init__(self, feature: str, *, first: int, stop: int, num_embeddings: int, pooling_factor: int) -> None:
        name = int(hash_texts(pa.array([feature]))[0])
        self._keys = [combine(_SEED, name, position) for position in range(1, pooling_factor)]
        if stop <= first:  # no known id at all
            first, stop = 0, num_embeddings
        self._first = first
        self._span = np.uint64(stop - first)
        self._num_embeddings = num_embeddings

    def of(self, rows: Positions) -> Positions:
        """Return ``[n * p]`` rows of ``[n]`` given ones, bag by bag."""
        bags = np.empty((rows.size, 1 + len(self._keys)), dtype=np.int64)
        bags[:, 0] = rows
        words = hash_integers(rows)
        for position, key in enumerate(self._keys, start=1):
            drawn = mix(words ^ key)
            drawn -= drawn // self._span * self._span
            bags[:, position] = drawn.view(np.int64) + self._first
        if rows.size and rows.view(np.uint64).max() >= self._num_embeddings:
            outside = rows.view(np.uint64) >= np.uint64(self._num_embeddings)
            bags[outside] = rows[outside, None]
        return bags.reshape(-1)
