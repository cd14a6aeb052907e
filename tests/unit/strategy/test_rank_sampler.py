import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from neo.strategy.rank_sampler import RankSampler, deal_over_ranks


def shares(
    size: int, world_size: int, batch_size: int, drop_last: bool = False, shuffle: bool = False
) -> list[list[int]]:
    data = range(size)
    order = RandomSampler(data) if shuffle else SequentialSampler(data)
    return [
        list(RankSampler(order, rank=r, world_size=world_size, batch_size=batch_size, drop_last=drop_last, seed=7))
        for r in range(world_size)
    ]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("size", [1, 5, 12, 17, 100])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_every_sample_once_and_equal_numbers_of_batches(size: int, world_size: int, shuffle: bool) -> None:
    dealt = shares(size, world_size, 4, shuffle=shuffle)
    assert sorted(number for share in dealt for number in share) == list(range(size))
    batches = {-(-len(share) // 4) for share in dealt}
    assert max(batches) - min(batches) <= (1 if 0 < size % (4 * world_size) < world_size else 0)


def test_the_global_batch_does_not_depend_on_the_world_size() -> None:
    alone = shares(24, 1, 12, shuffle=True)[0]
    first, second = shares(24, 2, 6, shuffle=True)
    assert alone == first[:6] + second[:6] + first[6:] + second[6:]


def test_drop_last_leaves_out_the_shorter_run() -> None:
    assert shares(11, 2, 2, drop_last=True) == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_length_and_epoch() -> None:
    sampler = RankSampler(RandomSampler(range(10)), rank=1, world_size=3, batch_size=2, seed=1)
    before = list(sampler)
    assert len(sampler) == len(before)
    assert list(sampler) == before
    sampler.set_epoch(1)
    assert list(sampler) != before


def test_another_sampler_is_dealt_in_its_order() -> None:
    assert list(RankSampler([5, 3, 1, 0], rank=1, world_size=2, batch_size=1)) == [3, 0]


class Stream(IterableDataset[int]):
    def __iter__(self) -> object:  # type: ignore[override]
        return iter(range(3))


def test_streams_and_distributed_samplers_are_left_alone() -> None:
    data = TensorDataset(torch.arange(6))
    own = DataLoader(data, sampler=DistributedSampler(data, num_replicas=2, rank=0))
    unbatched = DataLoader(data, batch_size=None)
    for loader in (own, unbatched, DataLoader(Stream(), batch_size=2)):
        before = getattr(loader.batch_sampler, "sampler", None)
        deal_over_ranks(loader, rank=0, world_size=2, seed=0)
        assert getattr(loader.batch_sampler, "sampler", None) is before
    loader = DataLoader(data, batch_size=2)
    for _ in range(2):  # dealing twice deals once
        deal_over_ranks(loader, rank=0, world_size=2, seed=0)
    assert isinstance(loader.batch_sampler, BatchSampler)
    assert [batch[0].tolist() for batch in loader] == [[0, 1], [4]]
