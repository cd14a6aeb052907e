"""Dealing the samples of a user's DataLoader over the ranks: none twice, none left out, equal numbers of batches."""

from collections.abc import Iterable, Iterator, Sized

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, Sampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from neo.data.batch import split_evenly


def deal_over_ranks(loader: DataLoader[object], *, rank: int, world_size: int, seed: int) -> None:
    """Let ``loader`` give this rank its share of the samples, in place.

    A loader over a stream, without batches of its own, or with a DistributedSampler already, stays as it is.
    """
    batches = loader.batch_sampler
    batches = getattr(batches, "_batch_sampler", batches)  # for predict Lightning puts a recorder around it
    if isinstance(loader.dataset, IterableDataset) or not isinstance(batches, BatchSampler):
        return
    if isinstance(batches.sampler, (DistributedSampler, RankSampler)):
        return
    batches.sampler = RankSampler(
        batches.sampler,
        rank=rank,
        world_size=world_size,
        batch_size=batches.batch_size,
        drop_last=batches.drop_last,
        seed=seed,
    )


class RankSampler(Sampler[int]):
    """One rank's share of the samples of another sampler.

    Runs of ``world_size * batch_size`` samples are cut into one batch per rank, so that every rank has the same
    number of batches; the last, shorter run is cut as evenly as possible. Only if that run has fewer samples than
    there are ranks, some ranks have one batch less.

    Args:
        order: The sampler of the whole. A random one is replaced by a permutation that is equal on all ranks.
        rank: This rank.
        world_size: All ranks.
        batch_size: Samples of one rank's batch.
        drop_last: Whether the last, shorter run is left out.
        seed: Decides the permutations, with the epoch.
    """

    def __init__(
        self,
        order: Iterable[int],
        *,
        rank: int,
        world_size: int,
        batch_size: int,
        drop_last: bool = False,
        seed: int = 0,
    ) -> None:
        self._order = order
        self._rank, self._world_size = rank, world_size
        self._run = world_size * batch_size
        self._drop_last = drop_last
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the permutation of an epoch; Lightning calls it before each."""
        self._epoch = epoch
        set_epoch = getattr(self._order, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        order = self._whole_order()
        for begin, end in self._shares(len(order)):
            yield from order[begin:end]

    def __len__(self) -> int:
        assert isinstance(self._order, Sized)
        return sum(end - begin for begin, end in self._shares(len(self._order)))

    def _whole_order(self) -> list[int]:
        if isinstance(self._order, RandomSampler):
            generator = torch.Generator().manual_seed(self._seed + self._epoch)
            return list(torch.randperm(len(self._order), generator=generator).tolist())
        if isinstance(self._order, SequentialSampler):
            return list(range(len(self._order)))
        return list(self._order)

    def _shares(self, total: int) -> Iterator[tuple[int, int]]:
        used = total - total % self._run if self._drop_last else total
        for start in range(0, used, self._run):
            begin, end = split_evenly(min(self._run, used - start), self._rank, self._world_size)
            yield start + begin, start + end
