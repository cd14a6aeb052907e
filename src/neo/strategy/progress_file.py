"""What is known after each validation, left for the summary of a run that does not come to its end."""

from pathlib import Path

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from neo.strategy.callbacks import StepMeter, TrainLog
from neo.strategy.lightning_module import RecommendationModule
from neo.strategy.summary import measured, write_summary


class ProgressFile(Callback):
    """After each validation write ``progress.json`` on rank 0; whoever ends a broken run adds it to the summary.

    Args:
        path: The file.
        meter: Where samples and step times come from.
        log: Where the loss comes from.
    """

    def __init__(self, path: Path, *, meter: StepMeter, log: TrainLog) -> None:
        self._path = path
        self._meter = meter
        self._log = log

    @override
    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write what is known."""
        assert isinstance(pl_module, RecommendationModule)
        if trainer.is_global_zero:
            known = measured(
                steps=trainer.global_step,
                samples=self._meter.samples,
                throughput=self._meter.throughput(),
                train_loss=self._log.last_loss,
                val=pl_module.report,
            )
            write_summary(self._path, known)
