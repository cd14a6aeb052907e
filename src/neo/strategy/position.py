"""Where in the data a run is, and how a resumed run goes on there, whatever its batch size and world size."""

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn
from typing_extensions import override

from neo.strategy.epoch_loader import EpochLoader
from neo.strategy.lightning_module import RecommendationModule


class DataPosition(Callback):
    """Counts the samples of an epoch, writes the position into every checkpoint, and takes it up on a resume.

    Lightning counts batches, which mean something else with another batch size. So its loops are not restored as they
    were saved: they are set to the position, as if the run had come here without a break. It must come before the
    callbacks that save.

    Args:
        loader: The training data.

    Attributes:
        epoch: Passes over the data done.
    """

    def __init__(self, loader: EpochLoader) -> None:
        self._loader = loader
        self.epoch = 0
        self._sample = 0  # samples of this epoch that were seen, over all ranks

    @override
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move on by one global batch; after the last one to the next epoch."""
        assert isinstance(pl_module, RecommendationModule)
        self.epoch = trainer.current_epoch
        self._sample += pl_module.last_global_samples
        if trainer.is_last_batch:
            self.epoch, self._sample = self.epoch + 1, 0

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "sample": self._sample}

    @override
    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Set the loops to the saved position, in place of what Lightning would do."""
        if trainer.state.fn != TrainerFn.FITTING:
            return
        saved = checkpoint["callbacks"][self.state_key]
        self.epoch, self._sample = saved["epoch"], saved["sample"]
        del checkpoint["loops"]
        num_done = self._loader.begin_at(epoch=self.epoch, sample=self._sample)
        _set_loops(trainer, epoch=self.epoch, num_done=num_done, step=checkpoint["global_step"])


def _set_loops(trainer: pl.Trainer, *, epoch: int, num_done: int, step: int) -> None:
    """Let Lightning's loops be in ``epoch`` after ``num_done`` of its batches, or before the epoch if that is 0."""
    fit, batches = trainer.fit_loop, trainer.fit_loop.epoch_loop
    is_within = num_done > 0
    for epochs in (fit.epoch_progress.total, fit.epoch_progress.current):
        epochs.load_state_dict({"ready": epoch + is_within, "started": epoch + is_within})
        epochs.load_state_dict({"processed": epoch, "completed": epoch})
    for counted, count in ((batches.batch_progress.total, step), (batches.batch_progress.current, num_done)):
        counted.load_state_dict(dict.fromkeys(("ready", "started", "processed", "completed"), count))
    optimizer = batches.automatic_optimization.optim_progress.optimizer
    optimizer.step.total.load_state_dict({"ready": step, "completed": step})
    batches._batches_that_stepped = step
    # The setter of FitLoop would also call a run between two epochs restarted where max_steps is set, and Lightning
    # would then not begin that epoch.
    fit._restarting = is_within
    batches.restarting = is_within
    fit._resuming_from_checkpoint = True  # The iterator that it has made is at the right place.
