"""The collectives that sharded execution needs, over torch.distributed; tests put in-process ranks in their place."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import torch.distributed as dist
from torch import Tensor


class Work(Protocol):
    """A collective under way."""

    def wait(self) -> object:
        """Return when the output may be read."""


class _Done:
    def wait(self) -> None:
        """Return at once: the collective was local."""


class Traffic:
    """What one rank has sent so far.

    Attributes:
        sent_bytes: ``[world_size]`` bytes sent to each rank in all-to-alls; what a rank keeps counts as sent to itself.
        reduced_bytes: Bytes of the tensors that were all-reduced.
    """

    def __init__(self, world_size: int) -> None:
        self.sent_bytes = [0] * world_size
        self.reduced_bytes = 0

    def between_nodes(self, rank: int, local_world_size: int) -> int:
        """Return the bytes that ``rank`` sent to ranks of other nodes."""
        node = rank // local_world_size
        return sum(sent for peer, sent in enumerate(self.sent_bytes) if peer // local_world_size != node)

    def within_node(self, rank: int, local_world_size: int) -> int:
        """Return the bytes that ``rank`` sent to other ranks of its node."""
        node = rank // local_world_size
        peers = enumerate(self.sent_bytes)
        return sum(sent for peer, sent in peers if peer // local_world_size == node and peer != rank)


class Collectives(ABC):
    """One rank's view of a group of ranks. Every rank calls the same operations in the same order.

    Attributes:
        rank: This rank.
        world_size: Ranks of the group.
        traffic: What this rank has sent.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size
        self.traffic = Traffic(world_size)

    def all_to_all(
        self, output: Tensor, source: Tensor, output_splits: Sequence[int], source_splits: Sequence[int]
    ) -> Work:
        """Send a part of ``source`` to every rank and receive a part of ``output`` from each; both flat.

        Args:
            output: ``[sum(output_splits)]``, filled when the returned work is done.
            source: ``[sum(source_splits)]``; must not change before that.
            output_splits: ``[world_size]`` elements received from each rank.
            source_splits: ``[world_size]`` elements sent to each rank.
        """
        for peer, size in enumerate(source_splits):
            self.traffic.sent_bytes[peer] += size * source.element_size()
        return self._all_to_all(output, source, output_splits, source_splits)

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum ``tensor`` over the ranks in place; every rank gets the same bits."""
        self.traffic.reduced_bytes += tensor.numel() * tensor.element_size()
        self._all_reduce(tensor)

    @abstractmethod
    def _all_to_all(
        self, output: Tensor, source: Tensor, output_splits: Sequence[int], source_splits: Sequence[int]
    ) -> Work:
        """Do the exchange."""

    @abstractmethod
    def _all_reduce(self, tensor: Tensor) -> None:
        """Do the sum."""

    @abstractmethod
    def all_gather_object(self, value: object) -> list[object]:
        """Return the (small, picklable) values of all ranks in rank order."""

    @abstractmethod
    def barrier(self) -> None:
        """Return when every rank has called it."""


class TorchCollectives(Collectives):
    """Collectives of a ``torch.distributed`` group (gloo or NCCL).

    Args:
        group: The process group; a group of its own keeps embedding traffic apart from DDP's.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group = group if group is not None else dist.group.WORLD
        super().__init__(dist.get_rank(self._group), dist.get_world_size(self._group))

    def _all_to_all(
        self, output: Tensor, source: Tensor, output_splits: Sequence[int], source_splits: Sequence[int]
    ) -> Work:
        if self.world_size == 1:
            output.copy_(source)
            return _Done()
        work: Work = dist.all_to_all_single(
            output, source, list(output_splits), list(source_splits), group=self._group, async_op=True
        )
        return work

    def _all_reduce(self, tensor: Tensor) -> None:
        if self.world_size > 1:
            dist.all_reduce(tensor, group=self._group)

    def all_gather_object(self, value: object) -> list[object]:
        """See ``Collectives``."""
        gathered: list[object] = [None] * self.world_size
        dist.all_gather_object(gathered, value, group=self._group)
        return gathered

    def barrier(self) -> None:
        """See ``Collectives``."""
        dist.barrier(group=self._group)
