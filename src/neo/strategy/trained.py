"""``callbacks.assert_trained``: a run that trained nothing fails, and says what stood still."""

from collections import deque
from dataclasses import dataclass
from typing import Any, cast

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from typing_extensions import override

from neo.comms.collectives import TorchCollectives
from neo.errors import NotTrainedError
from neo.strategy.collections import find_collections
from neo.strategy.lightning_module import RecommendationModule

_COMPARED_STEPS = 50
_MOST_NAMED = 5


@dataclass(frozen=True)
class _Seen:
    """What one rank tells the others: per step the sum of its losses and its samples; what moved."""

    losses: tuple[tuple[float, int], ...]
    moved: frozenset[str]
    steps: int


class AssertTrained(Callback):
    """Fail a run whose loss did not fall, or one of whose tables or dense parameters did not move.

    The loss of the first 50 steps is compared with that of the last 50 (of a shorter run: its halves). Every weight is
    read twice, before the first step and after the last.
    """

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._first: list[tuple[Tensor, int]] = []
        self._last: deque[tuple[Tensor, int]] = deque(maxlen=_COMPARED_STEPS)
        self._steps = 0

    @override
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note where every weight stands."""
        self._before = _checksums(pl_module)

    @override
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the loss of the step, without waiting for it."""
        assert isinstance(pl_module, RecommendationModule)
        self._steps += 1
        seen = (pl_module.last_loss_sum, pl_module.last_samples)
        if len(self._first) < _COMPARED_STEPS:
            self._first.append(seen)
        self._last.append(seen)

    @override
    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Judge the run; one that had no step left to take is not judged.

        Raises:
            NotTrainedError: Something stood still; every rank raises the same.
        """
        if self._steps == 0:
            return
        compared = min(_COMPARED_STEPS, self._steps // 2)
        kept = [*self._first[:compared], *list(self._last)[len(self._last) - compared :]]
        moved = {name for name, value in _checksums(pl_module).items() if value != self._before[name]}
        own = _Seen(tuple((float(loss), samples) for loss, samples in kept), frozenset(moved), self._steps)
        ranks = cast(list[_Seen], TorchCollectives().all_gather_object(own))
        problems = [*_still(set(self._before), ranks), *_loss(ranks, compared)]
        if problems:
            raise NotTrainedError(
                f"callbacks.assert_trained: after {self._steps} steps {'; '.join(problems)}; raise "
                "optim.sparse.lr and optim.dense.lr, train for longer, or leave callbacks.assert_trained out"
            )


def _checksums(module: pl.LightningModule) -> dict[str, int]:
    """Return a number per table and dense parameter that changes with any of its bits."""
    found: dict[str, int] = {}
    for collection in find_collections(module).values():
        for index, table in enumerate(collection.tables):
            found[f"table '{table.name}'"] = sum(
                _checksum(weight) for _, weight, _ in collection.engine.local_shards(index)
            )
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            found[f"dense parameter '{name}'"] = _checksum(parameter.detach())
    return found


def _checksum(values: Tensor) -> int:
    bits = values.contiguous().view(torch.int16 if values.element_size() == 2 else torch.int32)
    return int(bits.sum(dtype=torch.int64))


def _still(names: set[str], ranks: list[_Seen]) -> list[str]:
    still = sorted(names - set().union(*(rank.moved for rank in ranks)))
    if not still:
        return []
    more = f" and {len(still) - _MOST_NAMED} more" if len(still) > _MOST_NAMED else ""
    return [f"{', '.join(still[:_MOST_NAMED])}{more} did not move"]


def _loss(ranks: list[_Seen], compared: int) -> list[str]:
    if compared == 0:
        return []
    halves = []
    for part in (slice(0, compared), slice(compared, None)):
        pairs = [pair for rank in ranks for pair in rank.losses[part]]
        halves.append(sum(loss for loss, _ in pairs) / max(1, sum(samples for _, samples in pairs)))
    first, last = halves
    if last < first:
        return []
    return [f"the loss did not fall: {first:.6f} over the first {compared}, {last:.6f} over the last {compared}"]
