"""Loaders of the user's own, one per rank: what happens when they do not have the same number of batches."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from neo.data.batch import Batch, SparseFeatures
from neo.data.spec import Uneven
from neo.errors import DataError

T = TypeVar("T")

_LISTED_RANKS = 16


class Gathering(Protocol):
    """The part of the collectives that is needed here."""

    @property
    def rank(self) -> int:
        """This rank."""
        ...

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        ...

    def all_gather_object(self, obj: Any) -> Sequence[Any]:
        """Return what every rank gave, in the order of ranks."""
        ...


def empty_like(batch: Batch) -> Batch:
    """Return a batch without samples that has the features and types of ``batch``."""
    sparse = batch.sparse
    return Batch(
        dense=batch.dense[:0],
        sparse=SparseFeatures(
            sparse.keys,
            sparse.lengths[:0],
            sparse.values[:0],
            None if sparse.weights is None else sparse.weights[:0],
            sparse.weighted,
        ),
        labels=batch.labels[:0],
        index=batch.index,
        first_sample=batch.first_sample,
    )


class AlignedLoader(Generic[T]):
    """Gives every rank the same number of batches, so that no collective waits for a rank that has ended.

    Ranks exchange, once for every ``lookahead`` batches, how many they have; up to so many are held in memory.

    Args:
        loader: This rank's batches.
        collectives: Reaches the other ranks; every rank must iterate.
        policy: ``error``: refuse unequal numbers, before the first batch that a rank lacks. ``stop``: end with the
            rank that has fewest. ``pad``: a rank that has ended takes part with empty batches.
        empty: Makes an empty batch from a batch, keeping types and features.
        lookahead: Batches between two exchanges.

    Raises:
        DataError: While iterating, on every rank: the numbers differ under ``error`` (all of them are named), or no
            rank has a batch to make an empty one from.
    """

    def __init__(
        self,
        loader: Iterable[T],
        *,
        collectives: Gathering,
        policy: str,
        empty: Callable[[Any], Any] = empty_like,
        lookahead: int = 4,
    ) -> None:
        if lookahead < 1:
            raise ValueError(f"lookahead must be at least 1, not {lookahead}")
        self._loader = loader
        self._collectives = collectives
        self._policy = Uneven(policy)
        self._empty = empty
        self._lookahead = lookahead

    def set_epoch(self, epoch: int) -> None:
        """Tell the loader the epoch, if it wants to know."""
        inner = getattr(self._loader, "set_epoch", None)
        if inner is not None:
            inner(epoch)

    def __iter__(self) -> Iterator[T]:
        batches = iter(self._loader)
        steps, last = 0, None
        while True:
            ahead = list(islice(batches, self._lookahead))
            last = ahead[-1] if ahead else last
            counts = self._collectives.all_gather_object(len(ahead))
            if min(counts) != max(counts):
                if self._policy is Uneven.ERROR:
                    self._refuse(steps + len(ahead), batches if len(ahead) == self._lookahead else ())
                if self._policy is Uneven.STOP:
                    yield from ahead[: min(counts)]
                    return
                padding = self._padding(last)
                ahead += [padding] * (max(counts) - len(ahead))
            yield from ahead
            steps += len(ahead)
            if max(counts) < self._lookahead:
                return

    def _refuse(self, so_far: int, rest: Iterable[T]) -> None:
        totals = list(self._collectives.all_gather_object(so_far + sum(1 for _ in rest)))
        listed = list(enumerate(totals))
        if len(listed) > _LISTED_RANKS:
            listed = [(totals.index(count), count) for count in (min(totals), max(totals))]
        each = ", ".join(f"rank {rank} has {count}" for rank, count in listed)
        raise DataError(
            f"the ranks have unequal numbers of batches: {each}; deal the samples evenly, "
            f"or use NeoStrategy(uneven='stop') or uneven='pad'"
        )

    def _padding(self, last: T | None) -> T:
        """Return an empty batch; a rank that never had a batch takes one from another rank."""
        own = None if last is None else self._empty(last)
        for given in [own, *self._collectives.all_gather_object(own)]:
            if given is not None:
                padding: T = given
                return padding
        raise DataError("no rank has any batch, so that no empty one can be made for uneven=pad")
