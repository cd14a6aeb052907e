"""The sparse optimizers' configuration, torch-free: names, hyper-parameters, and those of single tables."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from neo.as_typed import quoted
from neo.errors import Finding, unknown_name
from neo.limits import Limits, in_unit_interval, outside_limits, unread, without_effect
from neo.registry import Registry
from neo.tables.spec import WeightsDtype

SPARSE_OPTIMIZERS: Registry[type] = Registry("sparse optimizer")
SPARSE_OPTIMIZERS.register("sgd", "neo.optim.sparse:SGD")
SPARSE_OPTIMIZERS.register("adagrad", "neo.optim.sparse:AdaGrad")
SPARSE_OPTIMIZERS.register("rowwise_adagrad", "neo.optim.sparse:RowwiseAdaGrad")
SPARSE_OPTIMIZERS.register("adam", "neo.optim.sparse:Adam")
SPARSE_OPTIMIZERS.register("partial_rowwise_adam", "neo.optim.sparse:PartialRowwiseAdam")

# The hyper-parameters beside lr that each optimizer and schedule reads; of a plugin's optimizer nothing is known.
_READS: Mapping[str, tuple[str, ...]] = {
    "sgd": (),
    "adagrad": ("eps", "initial_accumulator"),
    "rowwise_adagrad": ("eps", "initial_accumulator"),
    "adam": ("eps", "beta1", "beta2"),
    "partial_rowwise_adam": ("eps", "beta1", "beta2"),
}
_STATES: Mapping[str, Mapping[str, bool]] = {
    "sgd": {},
    "adagrad": {"sum": False},
    "rowwise_adagrad": {"sum": True},
    "adam": {"exp_avg": False, "exp_avg_sq": False},
    "partial_rowwise_adam": {"exp_avg": False, "exp_avg_sq": True},
}
_NOT_NEGATIVE = (0, math.inf)
_LIMITS: Limits = dict.fromkeys(("lr", "eps", "initial_accumulator", "weight_decay"), _NOT_NEGATIVE)


class WeightDecayMode(StrEnum):
    """What weight decay does to the rows that a batch touched; all other rows stay as they are.

    ``L2`` adds ``weight_decay * w`` to the merged gradient, before squares and moments are taken; ``DECOUPLED``
    subtracts ``lr * weight_decay * w`` beside the step, with the weight before it.
    """

    L2 = "l2"
    DECOUPLED = "decoupled"


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
        if findings := _findings(self):
            raise ValueError("SparseOptimizerSpec: " + ", ".join(str(finding) for finding in findings))
        # Plain text that names a member means that member.
        object.__setattr__(self, "weights_dtype", WeightsDtype(self.weights_dtype))
        object.__setattr__(self, "weight_decay_mode", WeightDecayMode(self.weight_decay_mode))

    @property
    def is_rowwise(self) -> bool:
        """Whether it keeps one state value per row (so that a column split changes it)."""
        return self.name in ("rowwise_adagrad", "partial_rowwise_adam")

    @property
    def rounds_stochastically(self) -> bool:
        """Whether updates round at random: only 16-bit weights do."""
        return self.stochastic_rounding and self.weights_dtype is not WeightsDtype.FP32

    @property
    def reads(self) -> tuple[str, ...]:
        """The hyper-parameters, beside ``lr`` and the weight decay, that the optimizer reads."""
        return _READS[self.name]

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
class TableOptimizer:
    """``optim.sparse.tables.NAME``: hyper-parameters of one table, in place of those of all; None keeps those.

    The optimizer itself, weight decay and weights are the same for all tables: these decide memory and kernel.
    """

    name: str
    lr: float | None = None
    eps: float | None = None
    beta1: float | None = None
    beta2: float | None = None
    initial_accumulator: float | None = None

    def applied_to(self, optimizer: SparseOptimizerSpec) -> SparseOptimizerSpec:
        """Return ``optimizer`` with these hyper-parameters."""
        given = {key: value for key in _TABLE_KEYS if (value := getattr(self, key)) is not None}
        return replace(optimizer, **given)


_TABLE_KEYS = tuple(entry.name for entry in fields(TableOptimizer) if entry.name != "name")


def _findings(optimizer: "SparseOptimizerSpec | SparseOptimizerConfig") -> list[Finding]:
    """Return the names that do not exist and the values outside their limits."""
    findings = []
    if optimizer.name not in SPARSE_OPTIMIZERS:
        findings.append(unknown_name("name", optimizer.name, "sparse optimizer", SPARSE_OPTIMIZERS.names()))
    if optimizer.weights_dtype not in list(WeightsDtype):
        findings.append(unknown_name("weights_dtype", optimizer.weights_dtype, "weights type", list(WeightsDtype)))
    if optimizer.weight_decay_mode not in list(WeightDecayMode):
        mode = optimizer.weight_decay_mode
        findings.append(unknown_name("weight_decay_mode", mode, "kind of weight decay", list(WeightDecayMode)))
    return findings + outside_limits(optimizer, _LIMITS) + in_unit_interval(optimizer, ("beta1", "beta2"))


def _no_table_key(key: str) -> Finding:
    if key in (entry.name for entry in fields(SparseOptimizerSpec)):
        fix = f"set optim.sparse.{key}; a table's own can be {', '.join(sorted(_TABLE_KEYS))}"
        return Finding(key, "is the same for all tables: it decides memory and kernel", fix)
    return unknown_name(key, key, "hyper-parameter of a table", _TABLE_KEYS)


@dataclass
class SparseOptimizerConfig:
    """``optim.sparse.*``; see ``TableOptimizer`` for single tables.

    Attributes:
        tables: Hyper-parameters of single tables: a table's name to ``{lr: …, eps: …}``.
    """

    name: str = "rowwise_adagrad"
    lr: float = 0.02
    eps: float = 1e-8
    beta1: float = 0.9
    beta2: float = 0.999
    initial_accumulator: float = 0.0
    weights_dtype: str = "fp32"
    weight_decay: float = 0.0
    weight_decay_mode: str = "l2"
    stochastic_rounding: bool = True
    tables: dict[str, Any] = field(default_factory=dict)

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``optim.sparse``."""
        findings = _findings(self) + without_effect(self, unread(_READS, self.name), self.name)
        if self.weight_decay == 0 and self.weight_decay_mode == WeightDecayMode.DECOUPLED:
            problem = "'decoupled' has no effect without weight decay"
            findings.append(Finding("weight_decay_mode", problem, "leave it at l2, or give a weight_decay above 0"))
        if self.weights_dtype == WeightsDtype.FP32:
            findings += without_effect(self, {"stochastic_rounding": ("fp16", "bf16")}, self.weights_dtype)
        for table, entry in self.tables.items():
            findings += [finding.under(f"tables.{table}") for finding in self._check_table(str(table), entry)]
        return findings

    def _check_table(self, table: str, entry: object) -> list[Finding]:
        """Return the mistakes in the hyper-parameters of one table. Whether there is such a table, others know."""
        written = f"++optim.sparse.tables.{table}.lr=0.1"
        if not isinstance(entry, Mapping) or not entry:
            return [Finding("", f"{quoted(entry)} is not a mapping of hyper-parameters", f"write {written}")]
        findings = [_no_table_key(str(key)) for key in entry if key not in _TABLE_KEYS]
        numbers: dict[str, float] = {}
        for key in (key for key in _TABLE_KEYS if key in entry):
            value = entry[key]
            if isinstance(value, bool) or not isinstance(value, int | float):
                fix = f"write ++optim.sparse.tables.{table}.{key}=NUMBER, or leave it out to have that of all tables"
                findings.append(Finding(key, f"{quoted(value)} is not a number", fix))
            else:
                numbers[key] = value
        if self.lr == 0 and numbers.get("lr"):
            problem = f"{numbers['lr']} has no ratio to optim.sparse.lr=0, which schedules change for all tables"
            findings.append(Finding("lr", problem, "set optim.sparse.lr above 0"))
        own = TableOptimizer(table, **numbers)
        findings += outside_limits(own, {key: limits for key, limits in _LIMITS.items() if key in numbers})
        findings += in_unit_interval(own, [key for key in ("beta1", "beta2") if key in numbers])
        ignored = {key: names for key, names in unread(_READS, self.name).items() if key in numbers}
        return findings + [
            Finding(
                key,
                f"{numbers[key]} has no effect on '{self.name}'",
                f"leave it out, or use {' or '.join(names)}",
            )
            for key, names in ignored.items()
        ]

    def to_spec(self) -> SparseOptimizerSpec:
        """Return the frozen form of a valid configuration, that of all tables."""
        return SparseOptimizerSpec(
            name=self.name,
            lr=self.lr,
            eps=self.eps,
            beta1=self.beta1,
            beta2=self.beta2,
            initial_accumulator=self.initial_accumulator,
            weights_dtype=WeightsDtype(self.weights_dtype),
            weight_decay=self.weight_decay,
            weight_decay_mode=WeightDecayMode(self.weight_decay_mode),
            stochastic_rounding=self.stochastic_rounding,
        )

    def table_optimizers(self) -> tuple[TableOptimizer, ...]:
        """Return what single tables have of their own, in the order of their names."""
        return tuple(TableOptimizer(str(name), **entry) for name, entry in sorted(self.tables.items()))
