"""SIGTERM as a wish to leave: noted when it comes, agreed on by all ranks at a step, so that they save and leave."""

import signal
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Preempted(Exception):  # noqa: N818 - no error: the run has saved and leaves
    """All ranks have saved a checkpoint because one of them was asked to end."""


class SigtermNotice:
    """Notes SIGTERM from ``listen`` on, in place of the handlers of others; ``restore`` brings those back."""

    def __init__(self) -> None:
        self.received = False
        self._before: Any = None

    def listen(self) -> None:
        """Note every SIGTERM from now on. Call it again where somebody else may have set a handler."""
        before = signal.signal(signal.SIGTERM, self._note)
        if self._before is None:
            self._before = before

    def restore(self) -> None:
        """Do with SIGTERM what was done before."""
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
            self._before = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = True


class DelayedVote:
    """Asks at every step whether any rank says yes, and hears the answer one step later, so that nobody waits.

    It has a group of its own on gloo: its messages overtake no other, and a GPU is not waited for.
    """

    def __init__(self) -> None:
        self._group: Any = None
        self._pending: tuple[Tensor, Any] | None = None

    def begin(self) -> None:
        """Make the group. Every rank calls it, before the first ``cast``."""
        if self._group is None and dist.is_initialized() and dist.get_world_size() > 1:
            self._group = dist.new_group(backend="gloo")

    def cast(self, *votes: bool) -> tuple[bool, ...]:
        """Vote, and return for each question whether any rank had said yes the time before; alone, at once.

        Every rank calls it equally often, with the same number of votes.
        """
        if self._group is None:
            return votes
        before = self.end()
        tally = torch.tensor(votes, dtype=torch.int32)
        self._pending = tally, dist.all_reduce(tally, op=dist.ReduceOp.MAX, group=self._group, async_op=True)
        return before or (False,) * len(votes)

    def end(self) -> tuple[bool, ...]:
        """Wait for the last answer and return it; nothing is under way afterwards."""
        if self._pending is None:
            return ()
        tally, work = self._pending
        self._pending = None
        work.wait()
        return tuple(tally.bool().tolist())
