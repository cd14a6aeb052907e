"""What is measured while a run trains: step times, samples per second, the loss of the global batch, learning rates."""

import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn
from typing_extensions import override

from neo.strategy.divergence import finite_loss
from neo.strategy.lightning_module import RecommendationModule

_KEPT_STEPS = 100_000
_RECENT_STEPS = 50


@dataclass(frozen=True)
class Throughput:
    """Times of the steps after the warm-up, None where there were none.

    Attributes:
        samples_per_s: Median over steps.
        median_s: Median step time.
        p10_s: Its 10th percentile.
        p90_s: Its 90th percentile.
    """

    samples_per_s: float | None
    median_s: float | None
    p10_s: float | None
    p90_s: float | None


class StepMeter(Callback):
    """Measure every step from the end of the one before, waiting for data included, validations left out.

    The last 100,000 steps are kept.

    Args:
        warmup_steps: First steps of this process that are left out.
    """

    def __init__(self, *, warmup_steps: int) -> None:
        self._skip = warmup_steps
        self._last_s = 0.0
        self._validating_since_s = 0.0
        self._seen = 0
        self._steps: deque[tuple[float, int]] = deque(maxlen=_KEPT_STEPS)
        self.samples = 0

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"samples": self.samples}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.samples = state_dict["samples"]

    @override
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock: a run that goes on within an epoch does not start one."""
        self._last_s = time.perf_counter()

    @override
    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock; what happens between epochs belongs to no step."""
        self._last_s = time.perf_counter()

    @override
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the time and the size of the global batch."""
        assert isinstance(pl_module, RecommendationModule)
        now_s = time.perf_counter()
        samples = pl_module.last_global_samples
        self.samples += samples
        self._seen += 1
        if self._seen > self._skip:
            self._steps.append((now_s - self._last_s, samples))
        self._last_s = now_s

    @override
    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop the clock."""
        self._validating_since_s = time.perf_counter()

    @override
    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Go on where it stood."""
        self._last_s += time.perf_counter() - self._validating_since_s

    def recent_samples_per_s(self) -> float | None:
        """Return the rate over the last 50 steps."""
        recent = [self._steps[i] for i in range(max(0, len(self._steps) - _RECENT_STEPS), len(self._steps))]
        elapsed_s = sum(step_s for step_s, _ in recent)
        return sum(samples for _, samples in recent) / elapsed_s if elapsed_s > 0 else None

    def recent_step_s(self) -> float | None:
        """Return the mean time of the last 50 steps."""
        recent = [self._steps[i][0] for i in range(max(0, len(self._steps) - _RECENT_STEPS), len(self._steps))]
        return statistics.fmean(recent) if recent else None

    def throughput(self) -> Throughput:
        """Return the statistics of all kept steps."""
        if not self._steps:
            return Throughput(None, None, None, None)
        times_s = sorted(step_s for step_s, _ in self._steps)
        rate = statistics.median(samples / step_s for step_s, samples in self._steps)
        return Throughput(rate, statistics.median(times_s), _quantile(times_s, 0.1), _quantile(times_s, 0.9))


class TrainLog(Callback):
    """Every so many steps write the global batch's loss, the rate and the learning rates; after validation its metrics.

    Only at those steps, before a validation and at the end the ranks exchange their losses; a loss that is not finite
    ends the run then, on all ranks alike.

    Args:
        meter: Where the rate comes from.
        every_n_steps: Steps between two lines of the log.

    Attributes:
        last_loss: Mean loss of the last step's global batch, when a validation begins and when training has ended;
            None if it had no samples.
    """

    def __init__(self, meter: StepMeter, *, every_n_steps: int) -> None:
        self._meter = meter
        self._every_n_steps = every_n_steps
        self.last_loss: float | None = None

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"last_loss": self.last_loss}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.last_loss = state_dict["last_loss"]

    @override
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log if it is time."""
        assert isinstance(pl_module, RecommendationModule)
        if trainer.global_step % self._every_n_steps:
            return
        values: dict[str, float | None] = {
            "train/loss": finite_loss(trainer, pl_module),
            "train/samples_per_s": self._meter.recent_samples_per_s(),
        }
        for group in trainer.optimizers[0].param_groups:
            values[f"lr/{group['name']}"] = float(group["lr"])
        _write(trainer, values)

    @override
    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the loss of the last step, and log it if that was not done."""
        assert isinstance(pl_module, RecommendationModule)
        self.last_loss = finite_loss(trainer, pl_module)
        if trainer.global_step % self._every_n_steps:
            _write(trainer, {"train/loss": self.last_loss, "train/samples_per_s": self._meter.recent_samples_per_s()})

    @override
    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Do not validate a model that has diverged."""
        assert isinstance(pl_module, RecommendationModule)
        if trainer.state.fn == TrainerFn.FITTING:
            self.last_loss = finite_loss(trainer, pl_module)

    @override
    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log the metrics of the validation."""
        assert isinstance(pl_module, RecommendationModule)
        report = pl_module.report
        if report is not None and report.samples > 0:
            names = ("auc", "ne", "log_loss", "accuracy", "calibration")
            _write(trainer, {f"val/{name}": getattr(report, name) for name in names})


def _write(trainer: pl.Trainer, values: dict[str, float | None]) -> None:
    known = {name: value for name, value in values.items() if value is not None}
    for logger in trainer.loggers:
        logger.log_metrics(known, step=trainer.global_step)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
