"""Our LightningModule: a model that gives logits, trained with binary cross-entropy."""

from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.nn import functional

from neo.data.batch import Batch
from neo.metrics.binary import BinaryMetrics, BinaryReport
from neo.models.spec import EMBEDDINGS_PATH
from neo.optim.dense import dense_optimizer
from neo.optim.schedule import schedule
from neo.optim.spec import OptimSpec
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection
from neo.strategy.collections import find_collections


class RecommendationModule(pl.LightningModule):
    """Train and validate a model on ``Batch`` objects.

    Args:
        model: ``(dense [B, num_dense], sparse) -> logits [B]``; holds its collection as ``embeddings``.
        optim: Optimizers and schedule.
        dense_names: Names of the dense columns, for messages.

    Attributes:
        last_dense: ``[B, num_dense]`` dense columns of the last training batch on this rank.
        last_loss_sum: Sum of the last training batch's losses on this rank; a scalar tensor, detached.
        last_samples: Samples of the last training batch on this rank.
        report: Metrics of the last validation; None before the first.
        report_step: Optimizer steps done when it was made.
    """

    def __init__(self, model: nn.Module, optim: OptimSpec, *, dense_names: Sequence[str] = ()) -> None:
        super().__init__()
        self.model = model
        self._optim = optim
        self.dense_names = tuple(dense_names)
        self.last_dense = torch.zeros(0, len(self.dense_names))
        self._metrics = BinaryMetrics()
        self.last_loss_sum = torch.zeros(())
        self.last_samples = 0
        self.report: BinaryReport | None = None
        self.report_step = -1

    @property
    def last_global_samples(self) -> int:
        """Samples of the last forward over all ranks."""
        embeddings = self.get_submodule(EMBEDDINGS_PATH)
        assert isinstance(embeddings, EmbeddingBagCollection)
        return sum(embeddings.last_batch_sizes)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the mean loss of this rank's samples, 0 where it has none."""
        self.last_dense = batch.dense
        logits = self.model(batch.dense, batch.sparse).float()
        total = functional.binary_cross_entropy_with_logits(logits, batch.labels, reduction="sum")
        self.last_loss_sum = total.detach()
        self.last_samples = batch.batch_size
        return total / max(batch.batch_size, 1)

    def on_validation_epoch_start(self) -> None:
        """Forget the last validation."""
        self._metrics.reset()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add this rank's samples to the metrics."""
        self._metrics.update(self.model(batch.dense, batch.sparse).float(), batch.labels)

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the logits ``[B]`` of this rank's samples."""
        logits: Tensor = self.model(batch.dense, batch.sparse).float()
        return logits

    def on_validation_epoch_end(self) -> None:
        """Join the metrics of all ranks."""
        self.report = self._metrics.report()
        self.report_step = self.trainer.global_step

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return one optimizer, which carries the sparse learning rates too, and the schedule of all its groups."""
        groups = [collection.sparse_parameter_group() for collection in find_collections(self).values()]
        dense = [parameter for parameter in self.parameters() if parameter.requires_grad]
        optimizer = dense_optimizer(dense, self._optim.dense, sparse_groups=groups)
        scheduler: Any = {"scheduler": schedule(optimizer, self._optim.schedule), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": scheduler}
