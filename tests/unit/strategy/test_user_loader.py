from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from neo.comms.collectives import Collectives
from neo.data.batch import Batch, SparseFeatures
from neo.data.spec import Uneven
from neo.errors import UnsupportedError
from neo.strategy.user_loader import InStepLoader, empty_batch
from neo.testing.fake_collectives import run_ranks


@dataclass(frozen=True)
class Pair:
    ids: Tensor
    name: str


Point = namedtuple("Point", ["x", "y"])


def test_everything_with_samples_is_emptied() -> None:
    sparse = SparseFeatures(("a",), torch.tensor([1, 2]), torch.tensor([3, 4, 5]), torch.ones(3))
    batch = {
        "batch": Batch(torch.ones(2, 3), sparse, torch.ones(2)),
        "pair": [Pair(torch.ones(2), "x"), (sparse, 1.5)],
        "point": Point(torch.ones(2), None),
    }
    empty = empty_batch(batch)
    assert empty["batch"].batch_size == 0
    assert empty["batch"].dense.shape == (0, 3)
    assert (empty["pair"][0].ids.shape, empty["pair"][0].name) == ((0,), "x")
    assert (empty["pair"][1][0].batch_size, empty["pair"][1][0].weights.shape, empty["pair"][1][1]) == (0, (0,), 1.5)
    assert (empty["point"].x.shape, empty["point"].y) == ((0,), None)


def test_what_cannot_be_emptied_is_named() -> None:
    with pytest.raises(UnsupportedError, match="uneven=pad cannot make an empty batch of a SimpleNamespace"):
        empty_batch([SimpleNamespace()])


class Unsized:
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_the_length_is_that_of_all_ranks() -> None:
    def lengths(policy: Uneven, own: object) -> list[int | str]:
        def rank(collectives: Collectives) -> int | str:
            loader = range(3) if collectives.rank == 0 else own
            try:
                return len(InStepLoader(loader, policy=policy, collectives=collectives))  # type: ignore[arg-type]
            except TypeError as error:
                return str(error)

        return run_ranks(2, rank)

    unknown = "the number of batches is not known before they are read"
    assert lengths(Uneven.STOP, range(2)) == [2, 2]
    assert lengths(Uneven.PAD, range(2)) == [3, 3]
    assert lengths(Uneven.ERROR, range(2)) == [unknown, unknown]
    assert lengths(Uneven.ERROR, range(3)) == [3, 3]
    assert lengths(Uneven.STOP, Unsized()) == [unknown, unknown]
