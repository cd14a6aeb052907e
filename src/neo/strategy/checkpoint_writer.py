"""When a run saves: by steps, by time, at its end, when a validation was good, and when it is asked to leave."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn
from typing_extensions import override

from neo.checkpoint.folder import FOLDER, step_name
from neo.checkpoint.keep import Keep, record_validation, tidy, would_be_kept
from neo.checkpoint.spec import MONITORS, CheckpointSpec
from neo.comms.collectives import TorchCollectives
from neo.errors import CheckpointError
from neo.metrics.binary import BinaryReport
from neo.strategy.lightning_module import RecommendationModule
from neo.strategy.neo_strategy import NeoStrategy
from neo.strategy.preemption import DelayedVote, Preempted, SigtermNotice


class CheckpointWriter(Callback):
    """Saves on all ranks at the same step, keeps the newest and the best, and lets links point at them.

    It must be the last callback: what the others keep belongs to the checkpoint. Where a validation follows a step, it
    is saved after the validation, so that a resumed run does not miss it.

    Args:
        spec: When to save and what to keep.
        run_dir: The run folder; checkpoints go into its ``checkpoints``.
        notice: Where SIGTERM is noted.
    """

    def __init__(self, spec: CheckpointSpec, run_dir: Path, *, notice: SigtermNotice) -> None:
        self._spec = spec
        self._folder = run_dir / FOLDER
        self._keep = Keep(spec.keep_last, spec.keep_best, spec.monitor)
        self._notice = notice
        self._vote = DelayedVote()
        self._saved_step = -1
        self._saved_s = 0.0
        self._is_due = False

    @override
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin to count: what the run was resumed from need not be saved again."""
        self._saved_s = time.monotonic()
        self._saved_step = trainer.global_step
        self._vote.begin()
        if self._spec.on_preemption:
            self._notice.listen()

    @override
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save if it is time.

        Raises:
            Preempted: The run was asked to leave, and has saved.
            CheckpointError: It cannot be written.
        """
        self._ask(trainer, pl_module)
        every = self._spec.every_n_steps
        self._is_due |= every is not None and trainer.global_step % every == 0
        if self._is_due and not _validation_follows(trainer):
            self._save(trainer, pl_module)

    @override
    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Hear SIGTERM in the validation after the training, too."""
        self._vote.begin()
        if self._spec.on_preemption:
            self._notice.listen()

    @override
    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Leave in the midst of a validation if asked to: its step is saved, after the training only if it was.

        Raises:
            Preempted: The run was asked to leave.
            CheckpointError: The checkpoint cannot be written.
        """
        if trainer.state.fn == TrainerFn.FITTING:
            self._ask(trainer, pl_module)
        elif self._spec.on_preemption and self._saved_step == trainer.global_step:
            (leaves,) = self._vote.cast(self._notice.received)
            if leaves:
                raise Preempted

    @override
    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save what was due, or what is among the best; note what was found with a checkpoint of this step."""
        assert isinstance(pl_module, RecommendationModule)
        val = metrics_of(pl_module.report)
        if trainer.state.fn == TrainerFn.FITTING:
            is_good = self._is_good(trainer, val)  # Every rank has to ask.
            if self._is_due or is_good:
                self._save(trainer, pl_module)
            return
        self._vote.end()
        if val is not None:
            self._on_rank_0(trainer, lambda: record_validation(self._folder, trainer.global_step, val))
            self._on_rank_0(trainer, lambda: tidy(self._folder, self._keep))

    @override
    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the end."""
        self._vote.end()
        if self._is_due or self._spec.at_end:
            self._save(trainer, pl_module)

    def _ask(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Let all ranks hear whether one of them is to leave, and rank 0's clock."""
        minutes = self._spec.every_minutes
        is_late = minutes is not None and time.monotonic() - self._saved_s >= 60 * minutes
        if not self._spec.on_preemption and minutes is None:
            return
        leaves, late = self._vote.cast(
            self._spec.on_preemption and self._notice.received, is_late and trainer.is_global_zero
        )
        self._is_due |= late
        if leaves:
            self._save(trainer, module)
            raise Preempted

    def _is_good(self, trainer: pl.Trainer, val: dict[str, float | None] | None) -> bool:
        """Return on every rank whether rank 0 finds this among the best."""
        if self._keep.monitor is None or val is None:
            return False
        value = val.get(self._keep.monitor)
        own = would_be_kept(self._folder, self._keep, value) if trainer.is_global_zero else False
        return bool(cast(list[bool], TorchCollectives().all_gather_object(own))[0])

    def _save(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._is_due = False
        step = trainer.global_step
        if step == self._saved_step:
            return
        path = self._folder / step_name(step)
        trainer.save_checkpoint(path, weights_only=False)
        self._on_rank_0(trainer, lambda: tidy(self._folder, self._keep))
        self._saved_step, self._saved_s = step, time.monotonic()

    def _on_rank_0(self, trainer: pl.Trainer, action: Callable[[], None]) -> None:
        """Work on the folder.

        Raises:
            CheckpointError: It cannot be written; the checkpoints in it are as they were.
        """
        if not trainer.is_global_zero:
            return
        try:
            action()
        except OSError as error:
            name = error.filename if error.filename is not None else self._folder
            raise CheckpointError(
                f"the checkpoints in '{self._folder}' cannot be tidied: {name}: {error.strerror}"
            ) from None


class InitialWeights(Callback):
    """Lets a fresh run start with the weights of a checkpoint; optimizers and steps begin anew.

    Args:
        path: The checkpoint.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    @override
    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Read them, now that the tables are sharded.

        Raises:
            CheckpointError: The checkpoint is damaged, or of another model.
        """
        strategy = trainer.strategy
        assert isinstance(strategy, NeoStrategy)
        strategy.load_weights(self._path)


def metrics_of(report: BinaryReport | None) -> dict[str, float | None] | None:
    """Return what a checkpoint says of a validation; None if there was none, or one without samples."""
    if report is None or report.samples == 0:
        return None
    values = {name: getattr(report, name) for name in MONITORS}
    return {name: value if value is not None and math.isfinite(value) else None for name, value in values.items()}


def _validation_follows(trainer: pl.Trainer) -> bool:
    loop = trainer.fit_loop
    assert loop._data_fetcher is not None
    return loop.epoch_loop._should_check_val_fx(loop._data_fetcher)
