"""R20: ranks with unequal numbers of batches."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from neo.data.aligned import AlignedLoader, empty_like
from neo.data.batch import Batch, SparseFeatures
from neo.errors import DataError


class Threads:
    """Ranks that are threads of this process."""

    def __init__(self, rank: int, shared: list[Any], barrier: threading.Barrier) -> None:
        self.rank = rank
        self.world_size = len(shared)
        self._shared = shared
        self._barrier = barrier

    def all_gather_object(self, obj: Any) -> Sequence[Any]:
        self._shared[self.rank] = obj
        self._barrier.wait(timeout=20)
        found = list(self._shared)
        self._barrier.wait(timeout=20)
        return found


def on_ranks(world_size: int, work: Callable[[Threads], Any]) -> list[Any]:
    shared, barrier = [None] * world_size, threading.Barrier(world_size)

    def run(rank: int) -> Any:
        try:
            return work(Threads(rank, shared, barrier))
        except DataError as error:
            return error

    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(run, range(world_size)))


def batch(number: int, size: int = 2) -> Batch:
    sparse = SparseFeatures(
        ["a", "b"],
        torch.ones(2 * size, dtype=torch.int32),
        torch.full((2 * size,), number),
        torch.ones(2 * size),
        [True, False],
    )
    return Batch(torch.ones(size, 3), sparse, torch.ones(size), index=number)


def lists(counts: Sequence[int], policy: str, lookahead: int = 4) -> list[Any]:
    def work(ranks: Threads) -> list[Batch]:
        own = [batch(number) for number in range(counts[ranks.rank])]
        return list(AlignedLoader(own, collectives=ranks, policy=policy, lookahead=lookahead))

    return on_ranks(len(counts), work)


@pytest.mark.parametrize("lookahead", [1, 2, 4])
def test_r20_error_names_both_counts_on_every_rank(lookahead: int) -> None:
    for error in lists([3, 2], "error", lookahead):
        assert isinstance(error, DataError)
        assert str(error) == (
            "the ranks have unequal numbers of batches: rank 0 has 3, rank 1 has 2; deal the samples evenly, "
            "or use NeoStrategy(uneven='stop') or uneven='pad'"
        )


def test_r20_error_counts_to_the_end() -> None:
    errors = lists([30, 2, 17], "error")
    assert {str(error).split(";")[0] for error in errors} == {
        "the ranks have unequal numbers of batches: rank 0 has 30, rank 1 has 2, rank 2 has 17"
    }
    many = lists([3] * 10 + [5] * 10, "error", lookahead=2)
    assert {str(error).split(";")[0].split(": ")[1] for error in many} == {"rank 0 has 3, rank 10 has 5"}


@pytest.mark.parametrize("lookahead", [1, 2, 4])
def test_r20_stop_ends_with_the_shortest(lookahead: int) -> None:
    assert [len(batches) for batches in lists([3, 2], "stop", lookahead)] == [2, 2]
    assert [len(batches) for batches in lists([9, 0, 4], "stop", lookahead)] == [0, 0, 0]


@pytest.mark.parametrize("lookahead", [1, 2, 4])
def test_r20_pad_gives_empty_batches(lookahead: int) -> None:
    long, short, none = lists([6, 2, 0], "pad", lookahead)
    assert [found.batch_size for found in long] == [2] * 6
    assert [found.batch_size for found in short] == [2, 2, 0, 0, 0, 0]
    assert [found.batch_size for found in none] == [0] * 6
    for padding in (short[-1], none[0]):
        assert padding.dense.shape == (0, 3)
        assert padding.sparse.keys == ("a", "b")
        assert padding.sparse.weighted == (True, False)
        assert padding.sparse.values.dtype == padding.sparse.lengths.dtype == torch.int64
        assert padding.sparse.weights is not None
        assert padding.sparse.weights.dtype == padding.labels.dtype == torch.float32


def test_equal_numbers_pass_unchanged_with_any_last_batch() -> None:
    for policy in ("error", "stop", "pad"):
        for count in (0, 1, 4, 5):
            assert [len(batches) for batches in lists([count, count], policy)] == [count, count]

    def work(ranks: Threads) -> list[int]:
        own = [batch(0), batch(1, size=1 + ranks.rank)]
        return [found.batch_size for found in AlignedLoader(own, collectives=ranks, policy="error")]

    assert on_ranks(2, work) == [[2, 1], [2, 2]]


def test_own_kinds_of_batches_need_an_own_empty_one() -> None:
    def work(ranks: Threads) -> list[str]:
        own = ["x"] * (2 - ranks.rank)
        return list(AlignedLoader(own, collectives=ranks, policy="pad", empty=lambda last: last + " empty"))

    assert on_ranks(2, work) == [["x", "x"], ["x", "x empty"]]


def test_epochs_reach_the_loader() -> None:
    class Loader:
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[int]:
            return iter([self.epoch])

    def work(ranks: Threads) -> list[int]:
        loader: AlignedLoader[int] = AlignedLoader(Loader(), collectives=ranks, policy="error")
        loader.set_epoch(7)
        AlignedLoader([1], collectives=ranks, policy="error").set_epoch(1)
        return list(loader)

    assert on_ranks(2, work) == [[7], [7]]
    with pytest.raises(ValueError, match="lookahead must be at least 1, not 0"):
        on_ranks(1, lambda ranks: AlignedLoader([1], collectives=ranks, policy="error", lookahead=0))


def test_an_empty_batch_keeps_index_and_features() -> None:
    padding = empty_like(batch(5))
    assert (padding.index, padding.batch_size, padding.sparse.batch_size) == (5, 0, 0)
