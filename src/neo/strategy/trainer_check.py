"""What a Trainer may not be asked for together with fused sparse updates: each would silently train another model."""

import lightning.pytorch as pl
from lightning.pytorch.callbacks import GradientAccumulationScheduler, StochasticWeightAveraging, WeightAveraging
from lightning.pytorch.plugins.precision import Precision
from torch.optim import Optimizer

from neo.errors import Finding, UnsupportedError

SUPPORTED_PRECISIONS = ("32-true", "bf16-mixed")

_PRECISION_REASONS = {
    "16-mixed": "its loss scaler would multiply the gradients that the fused sparse update consumes",
    "16-true": "half-precision weights lose small updates",
    "bf16-true": "half-precision weights lose small updates",
}
_CLIPPED_TOO_LATE = "the tables are updated during the backward, before a norm over all gradients is known"
_NOT_CLIPPED = "the tables are updated during the backward, with gradients that were not clipped"


def check_trainer(trainer: pl.Trainer) -> None:
    """Refuse a Trainer whose options do not fit; every mistake at once.

    Raises:
        UnsupportedError: Names each option, its value and what to use instead.
    """
    findings = [*_accumulation(trainer), *_clipping(trainer), *_precision(trainer), *_averaging(trainer)]
    if findings:
        raise UnsupportedError("NeoStrategy cannot train with these options:\n" + "\n".join(f"  {f}" for f in findings))


def _accumulation(trainer: pl.Trainer) -> list[Finding]:
    why = "every micro-batch updates the tables at once, which is not the step of the whole batch"
    fix = "use accumulate_grad_batches=1 and a larger batch"
    if trainer.accumulate_grad_batches != 1:
        return [Finding("accumulate_grad_batches", f"{trainer.accumulate_grad_batches} is refused: {why}", fix)]
    schedulers = [
        callback
        for callback in getattr(trainer, "callbacks", [])
        if isinstance(callback, GradientAccumulationScheduler) and callback.going_to_accumulate_grad_batches()
    ]
    return [Finding("callbacks", f"GradientAccumulationScheduler is refused: {why}", fix) for _ in schedulers]


def _clipping(trainer: pl.Trainer) -> list[Finding]:
    if not trainer.gradient_clip_val:
        return []
    why = _NOT_CLIPPED if trainer.gradient_clip_algorithm == "value" else _CLIPPED_TOO_LATE
    fix = "use gradient_clip_val=None, and lower learning rates where gradients explode"
    return [Finding("gradient_clip_val", f"{trainer.gradient_clip_val} is refused: {why}", fix)]


def refuse_clipping(plugin: Precision) -> None:
    """Refuse ``self.clip_gradients(...)`` too, which a module may call by itself; every way to clip ends in ``plugin``.

    Raises:
        UnsupportedError: Not now, but from the plugin when gradients are to be clipped.
    """

    def refuse(optimizer: Optimizer, clip_val: float = 0.0, *args: object, **kwargs: object) -> None:
        if clip_val > 0:
            raise UnsupportedError(
                f"clip_gradients with {clip_val} is refused: {_CLIPPED_TOO_LATE}; leave the call out"
            )

    plugin.clip_gradients = refuse  # type: ignore[method-assign]


def _precision(trainer: pl.Trainer) -> list[Finding]:
    precision = str(trainer.precision)
    if precision in SUPPORTED_PRECISIONS:
        return []
    reason = _PRECISION_REASONS.get(precision, "it was not tested against the reference")
    choices = " or ".join(SUPPORTED_PRECISIONS)
    return [Finding("precision", f"'{precision}' is refused: {reason}", f"use {choices}")]


def _averaging(trainer: pl.Trainer) -> list[Finding]:
    why = (
        "it averages the dense part over the steps and leaves the tables as they are, so that the halves would not fit"
    )
    averaging = (StochasticWeightAveraging, WeightAveraging)
    names = [type(found).__name__ for found in getattr(trainer, "callbacks", []) if isinstance(found, averaging)]
    return [Finding("callbacks", f"{name} is refused: {why}", "leave it out") for name in names]
