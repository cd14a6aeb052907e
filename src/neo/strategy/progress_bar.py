"""A progress bar with loss, samples per second and time left; plain lines where the output is no terminal."""

import math
import time
from datetime import timedelta
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from typing_extensions import override

from neo.strategy.callbacks import StepMeter
from neo.strategy.divergence import global_loss
from neo.strategy.lightning_module import RecommendationModule
from neo.units import format_count

_REFRESH_S = 0.5
_LINE_EVERY_S = 10.0


class ProgressBar(Callback):
    """Show how far the run is, on rank 0.

    Args:
        meter: Where the rate comes from.
        console: Where to show it.
    """

    def __init__(self, meter: StepMeter, *, console: Console) -> None:
        self._meter = meter
        self._console = console
        self._shown_s = 0.0
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    @override
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the bar on a terminal."""
        self._shown_s = time.monotonic()
        if not trainer.is_global_zero or not self._console.is_terminal:
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
        )
        self._bar = Progress(*columns, console=self._console, auto_refresh=False)
        total = total_steps(trainer)
        self._task = self._bar.add_task("training", total=None if math.isinf(total) else total, text="")
        self._bar.start()

    @override
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Refresh if it is time."""
        total = total_steps(trainer)
        done = trainer.global_step >= total
        assert isinstance(pl_module, RecommendationModule)
        last = global_loss(pl_module).mean if done else None  # every rank is here, and so the ranks can join theirs
        if not trainer.is_global_zero:
            return
        now_s = time.monotonic()
        if now_s - self._shown_s < (_REFRESH_S if self._bar is not None else _LINE_EVERY_S) and not done:
            return
        self._shown_s = now_s
        loss = _loss_text(last) if done else _own_loss_text(trainer, pl_module)
        text = "  ".join(part for part in (loss, *_rate_texts(trainer, self._meter)) if part)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=trainer.global_step, description="training", text=text, refresh=True)
        else:
            of_total = "" if math.isinf(total) else f"/{int(total)}"
            self._console.print(f"step {trainer.global_step}{of_total}  {text}", highlight=False, soft_wrap=True)

    @override
    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Say that the run validates."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description="validating", refresh=True)

    @override
    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print what the validation found, above the bar."""
        assert isinstance(pl_module, RecommendationModule)
        report = pl_module.report
        if trainer.is_global_zero and report is not None and report.samples > 0:
            named = (("AUC", report.auc), ("normalized entropy", report.ne), ("log loss", report.log_loss))
            metrics = "  ".join(f"{name} {'-' if value is None else f'{value:.4f}'}" for name, value in named)
            self._console.print(f"validated after step {trainer.global_step}  {metrics}", highlight=False)

    @override
    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the bar as it is."""
        self._stop()

    @override
    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Free the terminal for the error."""
        self._stop()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def total_steps(trainer: pl.Trainer) -> float:
    """Return the optimizer steps of the whole run; infinite where it cannot be known."""
    epochs = math.inf if trainer.max_epochs in (None, -1) else trainer.max_epochs
    by_epochs = epochs * trainer.num_training_batches if trainer.num_training_batches else 0.0
    return min(by_epochs, math.inf if trainer.max_steps == -1 else trainer.max_steps)


def _loss_text(loss: float | None) -> str:
    return "" if loss is None else f"loss {loss:.4f}"


def _own_loss_text(trainer: pl.Trainer, module: RecommendationModule) -> str:
    """Return ``loss 0.4513 (rank 0)``: asking the other ranks would hold all of them up."""
    if module.last_samples == 0:
        return ""
    text = _loss_text(float(module.last_loss_sum) / module.last_samples)
    return text if trainer.world_size == 1 else f"{text} (rank {trainer.global_rank})"


def _rate_texts(trainer: pl.Trainer, meter: StepMeter) -> list[str]:
    """Return ``123 k samples/s`` and ``0:01:20 left``, as far as they are known."""
    parts = []
    rate, step_s = meter.recent_samples_per_s(), meter.recent_step_s()
    if rate is not None:
        parts.append(f"{format_count(rate)} samples/s")
    left = total_steps(trainer) - trainer.global_step
    if step_s is not None and left > 0 and not math.isinf(left):
        parts.append(f"{timedelta(seconds=round(left * step_s))} left")
    return parts
