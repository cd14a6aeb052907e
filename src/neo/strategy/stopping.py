"""Ending a run by its validations. Their metrics are joined over all ranks, so every rank decides alike."""

from collections.abc import Sequence

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from typing_extensions import override

from neo.strategy.callback_options import MAXIMIZED, EarlyStoppingSpec
from neo.strategy.lightning_module import RecommendationModule


class EarlyStopping(Callback):
    """End training after ``patience`` validations in a row that were no better than the best.

    Not Lightning's: that one reads logged values, which neo's module has none of, and its names are free text.

    Args:
        spec: When.
        console: Where the reason is printed, on rank 0.
    """

    def __init__(self, spec: EarlyStoppingSpec, console: Console) -> None:
        self._spec = spec
        self._console = console
        self._best: float | None = None
        self._since_best = 0

    @override
    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Judge this validation."""
        value = _value(pl_module, self._spec.monitor)
        if value is not None and self._is_better(value):
            self._best, self._since_best = value, 0
            return
        self._since_best += 1
        if self._since_best < self._spec.patience:
            return
        best = "never known" if self._best is None else f"at best {self._best:.4f}"
        times = f"{self._since_best} validation{'' if self._since_best == 1 else 's'} in a row"
        _stop(trainer, self._console, f"{self._spec.monitor} was no better in {times} ({best})")

    def _is_better(self, value: float) -> bool:
        if self._best is None:
            return True
        gain = value - self._best if self._spec.maximizes else self._best - value
        return gain > self._spec.min_delta

    @override
    def state_dict(self) -> dict[str, float | int | None]:
        """Return what a resumed run goes on from."""
        return {"best": self._best, "since_best": self._since_best}

    @override
    def load_state_dict(self, state_dict: dict[str, float | int | None]) -> None:
        """Go on from a checkpoint."""
        self._best = state_dict["best"]
        self._since_best = int(state_dict["since_best"] or 0)


class StopAt(Callback):
    """End training at the first validation that reaches one of the goals.

    Args:
        goals: Metrics, each with the value that is good enough.
        console: Where the reason is printed, on rank 0.
    """

    def __init__(self, goals: Sequence[tuple[str, float]], console: Console) -> None:
        self._goals = tuple(goals)
        self._console = console

    @override
    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare this validation with the goals."""
        for name, goal in self._goals:
            value = _value(pl_module, name)
            if value is not None and (value >= goal if MAXIMIZED[name] else value <= goal):
                _stop(trainer, self._console, f"{name} {value:.4f} has reached callbacks.stop_at.{name}={goal}")
                return


def _value(module: pl.LightningModule, name: str) -> float | None:
    """Return a metric of the last validation, None where it is not known."""
    assert isinstance(module, RecommendationModule)
    report = module.report
    if report is None or report.samples == 0:
        return None
    value: float | None = getattr(report, name)
    return value


def _stop(trainer: pl.Trainer, console: Console, reason: str) -> None:
    if trainer.state.fn != "fit":
        return
    trainer.should_stop = True
    if trainer.is_global_zero:
        console.print(f"stopped after step {trainer.global_step}: {reason}", highlight=False, soft_wrap=True)
