"""Optimizer configuration, torch-free: sparse and dense optimizers, learning-rate schedules, and their names."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from neo.errors import Finding, unknown_name
from neo.limits import MAX_STEPS, Limits, in_unit_interval, outside_limits, unread, without_effect
from neo.optim.sparse_options import (
    SPARSE_OPTIMIZERS,
    SparseOptimizerConfig,
    SparseOptimizerSpec,
    TableOptimizer,
    WeightDecayMode,
)

__all__ = [
    "SPARSE_OPTIMIZERS",
    "DenseOptimizerConfig",
    "DenseOptimizerName",
    "DenseOptimizerSpec",
    "OptimConfig",
    "OptimSpec",
    "ScheduleConfig",
    "ScheduleName",
    "ScheduleSpec",
    "SparseOptimizerConfig",
    "SparseOptimizerSpec",
    "TableOptimizer",
    "WeightDecayMode",
]

_DENSE_READS: Mapping[str, tuple[str, ...]] = {
    "sgd": ("momentum",),
    "adagrad": ("eps",),
    "adam": ("eps", "beta1", "beta2"),
    "adamw": ("eps", "beta1", "beta2"),
}
_SCHEDULE_READS: Mapping[str, tuple[str, ...]] = {
    "constant": (),
    "linear": ("decay_steps", "final_factor"),
    "cosine": ("decay_steps", "final_factor"),
    "step": ("milestones", "step_factor"),
}
_NOT_NEGATIVE = (0, math.inf)
_SCHEDULE_LIMITS: Limits = {
    "warmup_steps": (0, MAX_STEPS),
    "decay_steps": (0, MAX_STEPS),
    "final_factor": _NOT_NEGATIVE,
    "step_factor": _NOT_NEGATIVE,
}


class DenseOptimizerName(StrEnum):
    """Optimizers of the dense part, all of them from ``torch.optim``."""

    SGD = "sgd"
    ADAGRAD = "adagrad"
    ADAM = "adam"
    ADAMW = "adamw"


class ScheduleName(StrEnum):
    """How the learning rates (sparse and dense alike) change over the steps."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"
    STEP = "step"


@dataclass(frozen=True)
class DenseOptimizerSpec:
    """The optimizer of the dense part; hyper-parameters as in ``torch.optim``.

    Attributes:
        name: The optimizer of the dense part.
        lr: Learning rate at the start.
        weight_decay: Strength of the weight decay; 0 is none.
        momentum: SGD: momentum; 0 is none.
        beta1: Adam, AdamW: decay of the first moment.
        beta2: Adam, AdamW: decay of the second moment.
        eps: Added to the root of the second moment.
    """

    name: DenseOptimizerName
    lr: float
    weight_decay: float
    momentum: float
    beta1: float
    beta2: float
    eps: float


@dataclass(frozen=True)
class ScheduleSpec:
    """The factor on every learning rate as a function of the step.

    Attributes:
        name: ``constant``; ``linear`` or ``cosine`` decay to ``final_factor`` over ``decay_steps``; ``step``
            multiplies by ``step_factor`` at each of ``milestones``.
        warmup_steps: Steps over which the factor rises linearly to 1 first.
        decay_steps: Length of the decay after the warm-up.
        final_factor: Where a decay ends.
        milestones: Steps (counted from 0) at which ``step`` changes.
        step_factor: What ``step`` multiplies by.
    """

    name: ScheduleName
    warmup_steps: int
    decay_steps: int
    final_factor: float
    milestones: tuple[int, ...]
    step_factor: float


@dataclass(frozen=True)
class OptimSpec:
    """All of ``optim.*``, resolved.

    Attributes:
        sparse: The optimizer of all tables.
        dense: The optimizer of everything else.
        schedule: How all learning rates change.
        tables: What single tables have in place of ``sparse``'s hyper-parameters.
    """

    sparse: SparseOptimizerSpec
    dense: DenseOptimizerSpec
    schedule: ScheduleSpec
    tables: tuple[TableOptimizer, ...] = ()

    def sparse_for(self, table: str) -> SparseOptimizerSpec:
        """Return the optimizer of the table that ``optim.sparse.tables`` calls ``table``."""
        own = [entry for entry in self.tables if entry.name == table]
        return own[0].applied_to(self.sparse) if own else self.sparse


@dataclass
class DenseOptimizerConfig:
    """``optim.dense.*``."""

    # Not AdaGrad: its first steps have the size lr whatever the gradient, so that a unit at the kink of its ReLU, which
    # rounding switches on or off, moved the validation loss by 2e-4 between kernels and world sizes; with Adam by 1e-9.
    name: str = "adam"
    lr: float = 0.001
    weight_decay: float = 0.0
    momentum: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    # Not torch's 1e-8: a gradient of that size is rounding noise, which Adam would make a step of full size.
    eps: float = 1e-7

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``optim.dense``."""
        findings = []
        if self.name not in list(DenseOptimizerName):
            findings.append(unknown_name("name", self.name, "dense optimizer", list(DenseOptimizerName)))
        findings += outside_limits(self, dict.fromkeys(("lr", "eps", "weight_decay", "momentum"), _NOT_NEGATIVE))
        findings += in_unit_interval(self, ("beta1", "beta2"))
        return findings + without_effect(self, unread(_DENSE_READS, self.name), self.name)


@dataclass
class ScheduleConfig:
    """``optim.schedule.*``; see ``ScheduleSpec``."""

    name: str = "constant"
    warmup_steps: int = 0
    decay_steps: int = 0
    final_factor: float = 0.0
    milestones: list[int] = field(default_factory=list)
    step_factor: float = 0.1

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``optim.schedule``."""
        findings = []
        if self.name not in list(ScheduleName):
            findings.append(unknown_name("name", self.name, "schedule", list(ScheduleName)))
        findings += outside_limits(self, _SCHEDULE_LIMITS)
        if self.name in (ScheduleName.LINEAR, ScheduleName.COSINE) and self.decay_steps == 0:
            findings.append(Finding("decay_steps", f"'{self.name}' needs the number of steps to decay over, not 0"))
        if self.name == ScheduleName.STEP and not self.milestones:
            findings.append(Finding("milestones", "'step' needs at least one step number, not []"))
        if list(self.milestones) != sorted(set(self.milestones)) or any(m < 0 for m in self.milestones):
            findings.append(Finding("milestones", f"{self.milestones} must rise and be at least 0"))
        return findings + without_effect(self, unread(_SCHEDULE_READS, self.name), self.name)


@dataclass
class OptimConfig:
    """``optim.*``."""

    sparse: SparseOptimizerConfig = field(default_factory=SparseOptimizerConfig)
    dense: DenseOptimizerConfig = field(default_factory=DenseOptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``optim``."""
        groups = (("sparse", self.sparse), ("dense", self.dense), ("schedule", self.schedule))
        return [finding.under(name) for name, group in groups for finding in group.validate()]

    def to_spec(self) -> OptimSpec:
        """Return the frozen form of a valid configuration."""
        dense, schedule = self.dense, self.schedule
        return OptimSpec(
            sparse=self.sparse.to_spec(),
            tables=self.sparse.table_optimizers(),
            dense=DenseOptimizerSpec(
                name=DenseOptimizerName(dense.name),
                lr=dense.lr,
                weight_decay=dense.weight_decay,
                momentum=dense.momentum,
                beta1=dense.beta1,
                beta2=dense.beta2,
                eps=dense.eps,
            ),
            schedule=ScheduleSpec(
                name=ScheduleName(schedule.name),
                warmup_steps=schedule.warmup_steps,
                decay_steps=schedule.decay_steps,
                final_factor=schedule.final_factor,
                milestones=tuple(schedule.milestones),
                step_factor=schedule.step_factor,
            ),
        )
