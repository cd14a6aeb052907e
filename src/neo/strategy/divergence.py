"""When the loss is not finite: the run ends, and the message says where the first bad value is.

A sound step costs one look at a number that the CPU holds already. On a GPU, where the look would wait for the device,
the ranks look when they exchange their losses anyway.
"""

from dataclasses import dataclass

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from typing_extensions import override

from neo.errors import DivergedError
from neo.sharded.diagnosis import kind_of
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.strategy.lightning_module import RecommendationModule

_LOWER = "lower optim.sparse.lr or optim.dense.lr, or check the data"
_NOWHERE = "every input, table and parameter is finite, so the dense part has computed a number beyond its type"


class LossGuard(Callback):
    """End the run before the backward of a loss that is not finite, so that no weight takes it up (CPU only)."""

    @override
    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor) -> None:
        """Look at this rank's loss.

        Raises:
            DivergedError: It is not finite; names step, rank, and the first value that is not.
        """
        assert isinstance(pl_module, RecommendationModule)
        if loss.device.type != "cpu" or bool(loss.isfinite()):
            return
        raise DivergedError(
            f"the training loss of step {trainer.global_step + 1} is not finite on rank {trainer.global_rank}: "
            f"{find_cause(pl_module)}"
        )


@dataclass(frozen=True)
class GlobalLoss:
    """The loss of the last step over its whole global batch.

    Attributes:
        mean: None if there were no samples.
        broken_ranks: Ranks whose own loss is not finite.
    """

    mean: float | None
    broken_ranks: tuple[int, ...]


def global_loss(module: RecommendationModule) -> GlobalLoss:
    """Return the loss of the last step over all ranks. Every rank must call it."""
    initialized = dist.is_initialized()
    rank, size = (dist.get_rank(), dist.get_world_size()) if initialized else (0, 1)
    total = torch.zeros(2 + size, dtype=torch.float64, device=module.device)
    total[0] = module.last_loss_sum
    total[1] = module.last_samples
    total[2 + rank] = ~module.last_loss_sum.isfinite()
    if initialized:
        dist.all_reduce(total)
    loss, samples, *broken = total.tolist()
    return GlobalLoss(loss / samples if samples > 0 else None, tuple(r for r, flag in enumerate(broken) if flag))


def finite_loss(trainer: pl.Trainer, module: RecommendationModule) -> float | None:
    """Return the mean loss of the last step over its whole global batch. Every rank must call it.

    Raises:
        DivergedError: It is not finite; every rank raises the same.
    """
    loss = global_loss(module)
    if loss.broken_ranks:
        plural = "s" if len(loss.broken_ranks) > 1 else ""
        ranks = ", ".join(map(str, loss.broken_ranks[:8])) + (", ..." if len(loss.broken_ranks) > 8 else "")
        raise DivergedError(
            f"the training loss of step {trainer.global_step} is not finite (rank{plural} {ranks}): the training has "
            f"diverged at this step or before it; now {_cause_on(loss.broken_ranks[0], module)}"
        )
    return loss.mean


def find_cause(module: RecommendationModule) -> str:
    """Return where, in the order of the forward, the first value of this rank's last batch is not finite; and a fix.

    It begins with the stage: ``stage lookup: table 'user', …``.
    """
    if (found := _in_dense(module)) is not None:
        return f"stage data: {found}; check the data"
    for child in module.modules():
        if isinstance(child, EmbeddingBagCollection) and (bad := child.find_non_finite()) is not None:
            return f"stage {bad.stage}: {bad}; {_LOWER}"
    for name, parameter in module.named_parameters():
        if not bool(parameter.detach().isfinite().all()):
            return f"stage dense forward: the dense parameter '{name}' holds {kind_of(parameter.detach())}; {_LOWER}"
    return f"stage dense forward: {_NOWHERE}; {_LOWER}"


def _cause_on(rank: int, module: RecommendationModule) -> str:
    """Return the cause as one rank sees it, on every rank."""
    if not dist.is_initialized():
        return find_cause(module)
    told: list[object] = [find_cause(module) if dist.get_rank() == rank else ""]
    dist.broadcast_object_list(told, src=rank)
    return str(told[0])


def _in_dense(module: RecommendationModule) -> str | None:
    bad = ~module.last_dense.isfinite()
    if not bool(bad.any()):
        return None
    column = int(bad.any(dim=0).nonzero()[0])
    samples = bad[:, column].nonzero().flatten()
    named = f"'{module.dense_names[column]}'" if column < len(module.dense_names) else str(column)
    held = kind_of(module.last_dense[samples, column])
    return (
        f"the dense column {named} holds {held} in {len(samples)} of {len(bad)} samples (first: sample "
        f"{int(samples[0])})"
    )
