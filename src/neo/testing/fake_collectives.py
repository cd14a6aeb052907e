"""Ranks as threads of one process: the collectives of a whole world without any process group."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

from neo.comms.collectives import Collectives, Work

R = TypeVar("R")


class _Done:
    def wait(self) -> None:
        """Return at once: the exchange is complete when it was posted."""


class FakeWorld:
    """The meeting place of the ranks. A rank that fails breaks it, so that no other rank waits for ever.

    One rank runs at a time, until it waits for the others: threads that compete for the interpreter at every step would
    take several times as long, and the order of events would be left to chance.

    Args:
        world_size: Number of ranks.
        timeout_s: How long a rank waits for the others before it gives up with ``BrokenBarrierError``.
    """

    def __init__(self, world_size: int, timeout_s: float = 20.0) -> None:
        self.world_size = world_size
        self.turn = threading.Condition()  # held by the rank that runs
        self._timeout_s = timeout_s
        self._slots: list[object] = [None] * world_size
        self._values: list[object] = []
        self._arrived = 0
        self._meetings = 0
        self._is_broken = False

    def exchange(self, rank: int, value: object) -> list[object]:
        """Return the values of all ranks; every rank calls it once per collective."""
        with self.turn:
            self._slots[rank] = value
            self._arrived += 1
            meeting = self._meetings
            if self._arrived == self.world_size:
                self._values, self._arrived = list(self._slots), 0
                self._meetings += 1
                self.turn.notify_all()
            deadline = time.monotonic() + self._timeout_s
            while self._meetings == meeting and not self._is_broken:
                was_woken = self.turn.wait(max(0.0, deadline - time.monotonic()))
                if not was_woken and self._meetings == meeting:
                    self.abort()
            if self._meetings == meeting:
                raise threading.BrokenBarrierError
            # The next meeting cannot end before this rank has come to it, so these are still the values of this one.
            return list(self._values)

    def abort(self) -> None:
        """Wake every waiting rank with an error."""
        with self.turn:
            self._is_broken = True
            self.turn.notify_all()


class FakeCollectives(Collectives):
    """One rank of a ``FakeWorld``."""

    def __init__(self, world: FakeWorld, rank: int) -> None:
        super().__init__(rank, world.world_size)
        self._world = world

    def _all_to_all(
        self, output: Tensor, source: Tensor, output_splits: Sequence[int], source_splits: Sequence[int]
    ) -> Work:
        # Ranks that disagree on a size would hang or corrupt memory on a real group.
        assert sum(output_splits) == output.numel() and sum(source_splits) == source.numel(), (
            "splits and buffers differ"
        )
        parts = source.detach().clone().split(list(source_splits))
        received = self._world.exchange(self.rank, parts)
        for target, sender in zip(output.split(list(output_splits)), received, strict=True):
            part = sender[self.rank]  # type: ignore[index]
            assert target.shape == part.shape, f"rank {self.rank} expects {target.shape}, is sent {part.shape}"
            target.copy_(part)
        return _Done()

    def _all_reduce(self, tensor: Tensor) -> None:
        received = self._world.exchange(self.rank, tensor.detach().clone())
        tensor.zero_()
        for part in received:
            tensor.add_(part)  # type: ignore[arg-type]

    def all_gather_object(self, value: object) -> list[object]:
        """See ``Collectives``."""
        return self._world.exchange(self.rank, value)

    def barrier(self) -> None:
        """See ``Collectives``."""
        self._world.exchange(self.rank, None)


def run_ranks(world_size: int, function: Callable[[Collectives], R], timeout_s: float = 20.0) -> list[R]:
    """Run ``function`` once per rank, each in a thread of its own, and return the results in rank order.

    Raises:
        Exception: What the first failing rank raised; ranks that only broke off because of it are passed over.
    """
    world = FakeWorld(world_size, timeout_s)
    results: dict[int, R] = {}
    errors: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        try:
            with world.turn:
                results[rank] = function(FakeCollectives(world, rank))
        except BaseException as error:
            errors[rank] = error
            world.abort()

    if world_size == 1:
        return [function(FakeCollectives(world, 0))]
    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        causes = [error for error in errors.values() if not isinstance(error, threading.BrokenBarrierError)]
        raise causes[0] if causes else next(iter(errors.values()))
    return [results[rank] for rank in range(world_size)]
