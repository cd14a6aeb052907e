"""Optimizer configuration, torch-free: sparse and dense optimizers, learning-rate schedules, and their names."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from neo.errors import Finding, unknown_name
from neo.limits import MAX_STEPS, Limits, outside_limits, without_effect
from neo.registry import Registry
from neo.tables.spec import WeightsDtype

SPARSE_OPTIMIZERS: Registry[type] = Registry("sparse optimizer")
SPARSE_OPTIMIZERS.register("sgd", "neo.optim.sparse:SGD")
SPARSE_OPTIMIZERS.register("adagrad", "neo.optim.sparse:AdaGrad")
SPARSE_OPTIMIZERS.register("rowwise_adagrad", "neo.optim.sparse:RowwiseAdaGrad")
SPARSE_OPTIMIZERS.register("adam", "neo.optim.sparse:Adam")
SPARSE_OPTIMIZERS.register("partial_rowwise_adam", "neo.optim.sparse:PartialRowwiseAdam")


# The hyper-parameters beside lr that each optimizer and schedule reads; of a plugin's optimizer nothing is known.
_SPARSE_READS: Mapping[str, tuple[str, ...]] = {
    "sgd": (),
    "adagrad": ("eps", "initial_accumulator"),
    "rowwise_adagrad": ("eps", "initial_accumulator"),
    "adam": ("eps", "beta1", "beta2"),
    "partial_rowwise_adam": ("eps", "beta1", "beta2"),
}
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
_STATES: Mapping[str, Mapping[str, bool]] = {
    "sgd": {},
    "adagrad": {"sum": False},
    "rowwise_adagrad": {"sum": True},
    "adam": {"exp_avg": False, "exp_avg_sq": False},
    "partial_rowwise_adam": {"exp_avg": False, "exp_avg_sq": True},
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


class WeightDecayMode(StrEnum):
    """What weight decay does to the rows that a batch touched; all other rows stay as they are.

    ``L2`` adds ``weight_decay * w`` to the merged gradient, before squares and moments are taken; ``DECOUPLED``
    subtracts ``lr * weight_decay * w`` beside the step, with the weight before it.
    """

    L2 = "l2"
    DECOUPLED = "decoupled"


class ScheduleName(StrEnum):
    """How the learning rates (sparse and dense alike) change over the steps."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"
    STEP = "step"


@dataclass(frozen=True)
class SparseOptimizerSpec:
    """A sparse optimizer with every hyper-parameter explicit.

    Attributes:
        name: A name in ``SPARSE_OPTIMIZERS``.
        lr: Learning rate at the start.
        eps: Added to the root of the second moment.
        beta1: Adam: decay of the first moment.
        beta2: Adam: decay of the second moment.
        initial_accumulator: AdaGrad: value of the accumulator before the first step.
        weights_dtype: Type of the stored weights; states are always fp32.
        weight_decay: Strength of the weight decay; 0 is none.
        weight_decay_mode: What it does.
        stochastic_rounding: Whether a 16-bit weight rounds at random to one of its neighbours, with the probabilities
            that keep its mean, instead of to the nearest one. Without effect on fp32.

    Raises:
        ValueError: A name does not exist or a value is outside its limits; names each.
    """

    name: str = "rowwise_adagrad"
    lr: float = 0.02
    eps: float = 1e-8
    beta1: float = 0.9
    beta2: float = 0.999
    initial_accumulator: float = 0.0
    weights_dtype: WeightsDtype = WeightsDtype.FP32
    weight_decay: float = 0.0
    weight_decay_mode: WeightDecayMode = WeightDecayMode.L2
    stochastic_rounding: bool = True

    def __post_init__(self) -> None:
        if findings := _sparse_findings(self):
            raise ValueError("SparseOptimizerSpec: " + ", ".join(str(finding) for finding in findings))

    @property
    def is_rowwise(self) -> bool:
        """Whether it keeps one state value per row (so that a column split changes it)."""
        return self.name in ("rowwise_adagrad", "partial_rowwise_adam")

    @property
    def rounds_stochastically(self) -> bool:
        """Whether updates round at random: only 16-bit weights do."""
        return self.stochastic_rounding and self.weights_dtype is not WeightsDtype.FP32

    @property
    def states(self) -> Mapping[str, bool]:
        """Names of its state tensors, and whether each holds one value per row instead of one per element."""
        return _STATES[self.name]

    def state_bytes(self, num_rows: int, num_columns: int) -> int:
        """Bytes of optimizer state of a shard of this shape."""
        if self.name == "sgd":
            return 0
        if self.name == "rowwise_adagrad":
            return 4 * num_rows
        if self.name == "partial_rowwise_adam":
            return 4 * num_rows * num_columns + 4 * num_rows
        return (8 if self.name == "adam" else 4) * num_rows * num_columns


@dataclass(frozen=True)
class DenseOptimizerSpec:
    """The optimizer of the dense part; hyper-parameters as in ``torch.optim``."""

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
    """All of ``optim.*``, resolved."""

    sparse: SparseOptimizerSpec
    dense: DenseOptimizerSpec
    schedule: ScheduleSpec


def _sparse_findings(optimizer: "SparseOptimizerSpec | SparseOptimizerConfig") -> list[Finding]:
    """Return the names that do not exist and the values outside their limits."""
    findings = []
    if optimizer.name not in SPARSE_OPTIMIZERS:
        findings.append(unknown_name("name", optimizer.name, "sparse optimizer", SPARSE_OPTIMIZERS.names()))
    if optimizer.weights_dtype not in list(WeightsDtype):
        findings.append(unknown_name("weights_dtype", optimizer.weights_dtype, "weights type", list(WeightsDtype)))
    findings += outside_limits(optimizer, dict.fromkeys(("lr", "eps", "initial_accumulator"), _NOT_NEGATIVE))
    return findings + _in_unit_interval(optimizer, ("beta1", "beta2"))


@dataclass
class SparseOptimizerConfig:
    """``optim.sparse.*``."""

    name: str = "rowwise_adagrad"
    lr: float = 0.02
    eps: float = 1e-8
    beta1: float = 0.9
    beta2: float = 0.999
    initial_accumulator: float = 0.0
    weights_dtype: str = "fp32"

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``optim.sparse``."""
        return _sparse_findings(self) + without_effect(self, _unread(_SPARSE_READS, self.name), self.name)


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
    eps: float = 1e-8

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``optim.dense``."""
        findings = []
        if self.name not in list(DenseOptimizerName):
            findings.append(unknown_name("name", self.name, "dense optimizer", list(DenseOptimizerName)))
        findings += outside_limits(self, dict.fromkeys(("lr", "eps", "weight_decay", "momentum"), _NOT_NEGATIVE))
        findings += _in_unit_interval(self, ("beta1", "beta2"))
        return findings + without_effect(self, _unread(_DENSE_READS, self.name), self.name)


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
        return findings + without_effect(self, _unread(_SCHEDULE_READS, self.name), self.name)


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
        sparse, dense, schedule = self.sparse, self.dense, self.schedule
        return OptimSpec(
            sparse=SparseOptimizerSpec(
                name=sparse.name,
                lr=sparse.lr,
                eps=sparse.eps,
                beta1=sparse.beta1,
                beta2=sparse.beta2,
                initial_accumulator=sparse.initial_accumulator,
                weights_dtype=WeightsDtype(sparse.weights_dtype),
            ),
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


def _unread(reads: Mapping[str, tuple[str, ...]], name: str) -> dict[str, list[str]]:
    """Return the keys that ``name`` does not read, each with the names that do; none for an unknown name."""
    if name not in reads:
        return {}
    unread = sorted({key for keys in reads.values() for key in keys} - set(reads[name]))
    return {key: [other for other, keys in reads.items() if key in keys] for key in unread}


def _in_unit_interval(config: object, names: Sequence[str]) -> list[Finding]:
    values = {name: getattr(config, name) for name in names}
    return [Finding(n, f"{v} is outside [0, 1)") for n, v in values.items() if not 0 <= v < 1]
