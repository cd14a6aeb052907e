"""Checkpoint configuration, torch-free: when a run is saved, what is kept, and what it starts from."""

from dataclasses import dataclass
from pathlib import Path

from neo.checkpoint.folder import find_checkpoint
from neo.errors import CheckpointError, Finding, unknown_name
from neo.limits import MAX_STEPS, empty_paths, outside_limits

AUTO = "auto"
MONITORS = {"auc": True, "ne": False, "log_loss": False, "accuracy": True}
"""Metrics of a validation by which checkpoints can be ranked, and whether more is better."""
_LIMITS = {
    "every_n_steps": (1, MAX_STEPS),
    "every_minutes": (0.01, 525_600),
    "keep_last": (1, MAX_STEPS),
    "keep_best": (1, MAX_STEPS),
}


@dataclass(frozen=True)
class CheckpointSpec:
    """``checkpoint.*``, resolved.

    Attributes:
        every_n_steps: Steps between two checkpoints, or None.
        every_minutes: Minutes between two checkpoints, or None.
        at_end: Whether the end of the training is saved.
        monitor: The validation metric by which the best are kept; None keeps none for their quality.
        keep_last: How many of the newest are kept; None keeps all.
        keep_best: How many of the best are kept.
        resume: Where the run goes on: ``auto``, a path, or None for a fresh start.
        weights_from: A checkpoint whose weights the run starts with, or None.
        on_preemption: Whether SIGTERM makes the run save and leave.
    """

    every_n_steps: int | None
    every_minutes: float | None
    at_end: bool
    monitor: str | None
    keep_last: int | None
    keep_best: int
    resume: str | None
    weights_from: str | None
    on_preemption: bool


@dataclass
class CheckpointConfig:
    """``checkpoint.*``; see ``CheckpointSpec``."""

    every_n_steps: int | None = None
    every_minutes: float | None = None
    at_end: bool = True
    monitor: str | None = None
    keep_last: int | None = 3
    keep_best: int = 1
    resume: str | None = None
    weights_from: str | None = None
    on_preemption: bool = True

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``checkpoint``."""
        findings = outside_limits(self, _LIMITS) + empty_paths(self, ("resume", "weights_from"))
        if self.monitor is not None and self.monitor not in MONITORS:
            findings.append(unknown_name("monitor", self.monitor, "validation metric", MONITORS))
        if self.monitor is None and self.keep_best != CheckpointConfig.keep_best:
            problem = f"{self.keep_best} has no effect without checkpoint.monitor"
            findings.append(Finding("keep_best", problem, f"choose what is best: {', '.join(MONITORS)}"))
        if self.resume is not None and self.weights_from is not None:
            problem = f"'{self.weights_from}' contradicts checkpoint.resume, which takes weights and everything else"
            findings.append(Finding("weights_from", problem, "use one of them"))
        return findings

    def check_paths(self) -> list[Finding]:
        """Return a finding for each path, keys relative to ``checkpoint``, that holds no complete checkpoint."""
        findings = []
        for key, path in (("resume", self.resume), ("weights_from", self.weights_from)):
            if not path or (key == "resume" and path == AUTO):
                continue
            try:
                find_checkpoint(Path(path).expanduser())
            except CheckpointError as error:
                findings.append(Finding(key, str(error)))
        return findings

    def to_spec(self) -> CheckpointSpec:
        """Return the frozen form of a valid configuration."""
        return CheckpointSpec(
            every_n_steps=self.every_n_steps,
            every_minutes=self.every_minutes,
            at_end=self.at_end,
            monitor=self.monitor,
            keep_last=self.keep_last,
            keep_best=self.keep_best,
            resume=self.resume,
            weights_from=self.weights_from,
            on_preemption=self.on_preemption,
        )
