"""Largest first, each piece to the least loaded rank that has room."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from neo.planner.problem import DoesNotFitError, Item
from neo.planner.work import MAX_RANK_BYTES


def partition(
    items: Sequence[Item], *, load: NDArray[np.float64], free_bytes: NDArray[np.int64]
) -> Mapping[str, tuple[int, ...]]:
    """Spread items over ranks; see ``Partitioner``. Equal loads go to the lowest rank, equal items by name."""
    load, free_bytes = load.copy(), free_bytes.copy()
    ranks: dict[str, tuple[int, ...]] = {}
    for item in sorted(items, key=lambda item: (-max(piece.load for piece in item.pieces), item.key)):
        taken = np.zeros(len(load), dtype=bool)
        chosen = []
        for piece in item.pieces:
            open_bytes = np.where(taken, -1, free_bytes)
            # A piece may be larger than a 64-bit integer; what is free is not.
            candidates = np.where(open_bytes >= min(piece.num_bytes, MAX_RANK_BYTES), load, np.inf)
            rank = int(candidates.argmin())
            if candidates[rank] == np.inf:
                best = int(open_bytes.argmax())
                raise DoesNotFitError(item.key, piece, best, max(0, int(open_bytes[best])))
            taken[rank] = True
            load[rank] += piece.load
            free_bytes[rank] -= piece.num_bytes
            chosen.append(rank)
        ranks[item.key] = tuple(chosen)
    return ranks
