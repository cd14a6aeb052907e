"""When a run validates, and on how much: ``trainer.val_check_interval`` and ``trainer.limit_val_batches``."""

from collections.abc import Sized
from typing import Any

from neo.errors import ConfigError, Finding
from neo.strategy.spec import TrainerSpec


def validation_times(spec: TrainerSpec) -> dict[str, Any]:
    """Return the arguments of Lightning's Trainer. Steps are counted over the whole run, not from each epoch."""
    times: dict[str, Any] = {}
    if spec.val_check_interval is not None:
        times["val_check_interval"] = spec.val_check_interval
        if isinstance(spec.val_check_interval, int):
            times["check_val_every_n_epoch"] = None
    if spec.limit_val_batches is not None:
        times["limit_val_batches"] = spec.limit_val_batches
    return times


def check_validation(spec: TrainerSpec, train: Sized, val: Sized | None) -> None:
    """Refuse parts of something whose size is not known, or that are less than a batch.

    Args:
        spec: What was asked for.
        train: The training loader.
        val: The validation loader, if there is one.

    Raises:
        ConfigError: Names the key, and the count to write in its place.
    """
    findings = []
    if isinstance(spec.val_check_interval, float) and spec.val_check_interval < 1 and _length(train) is None:
        findings.append(_unknown("val_check_interval", spec.val_check_interval, "an epoch"))
    part = spec.limit_val_batches
    if val is not None and isinstance(part, float) and part < 1:
        batches = _length(val)
        if batches is None:
            findings.append(_unknown("limit_val_batches", part, "the validation data"))
        elif batches * part < 1:
            problem = f"{part} of {batches} global batches is less than one"
            findings.append(Finding("trainer.limit_val_batches", problem, "write trainer.limit_val_batches=1"))
    if findings:
        raise ConfigError(findings)


def _unknown(key: str, part: float, whole: str) -> Finding:
    problem = f"{part} of {whole} cannot be told: its length is not known before everything is read"
    return Finding(f"trainer.{key}", problem, "write a whole number of batches")


def _length(loader: Sized) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None
