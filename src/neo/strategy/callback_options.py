"""What watches a run and may end it, torch-free: early stopping, goals, the profiler, callbacks of other packages."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from neo.as_typed import as_typed
from neo.errors import Finding, unknown_name
from neo.limits import MAX_STEPS, outside, outside_limits
from neo.registry import Registry

MAXIMIZED: Mapping[str, bool] = {"accuracy": True, "auc": True, "log_loss": False, "ne": False}
"""Validation metrics that a run can be watched by, and whether more is better."""

CALLBACKS: Registry[Any] = Registry("callback")
"""Callbacks of other packages: a class or function of keyword options that gives a ``lightning.pytorch.Callback``."""

_MODES = {True: "max", False: "min"}
_AUTO = "auto"


@dataclass(frozen=True)
class EarlyStoppingSpec:
    """End a run that gets no better.

    Attributes:
        monitor: A validation metric.
        patience: Validations in a row that may be no better than the best.
        min_delta: By how much a validation has to be better to count.
    """

    monitor: str
    patience: int
    min_delta: float

    @property
    def maximizes(self) -> bool:
        """Whether more of the metric is better."""
        return MAXIMIZED[self.monitor]


@dataclass
class EarlyStoppingConfig:
    """``callbacks.early_stopping.*``; ``patience`` switches it on.

    Attributes:
        mode: Whether a smaller or a larger value is better; ``auto`` knows it for each metric.
    """

    patience: int | None = None
    monitor: str = "ne"
    mode: str = _AUTO
    min_delta: float = 0.0

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``callbacks.early_stopping``."""
        findings = outside_limits(self, {"patience": (1, MAX_STEPS)})
        findings += outside("min_delta", self.min_delta, 0)
        if self.monitor not in MAXIMIZED:
            findings.append(unknown_name("monitor", self.monitor, "metric of a validation", MAXIMIZED))
        elif self.mode in _MODES.values() and self.mode != _MODES[MAXIMIZED[self.monitor]]:
            better = "more" if MAXIMIZED[self.monitor] else "less"
            findings.append(Finding("mode", f"'{self.mode}' contradicts '{self.monitor}': {better} of it is better"))
        if self.mode not in (_AUTO, *_MODES.values()):
            findings.append(unknown_name("mode", self.mode, "mode", (_AUTO, *_MODES.values())))
        if self.patience is None:
            findings += _idle(self, "patience", "callbacks.early_stopping.patience=3")
        return findings

    def to_spec(self) -> EarlyStoppingSpec | None:
        """Return the frozen form of a valid configuration; None if it is off."""
        return None if self.patience is None else EarlyStoppingSpec(self.monitor, self.patience, self.min_delta)


@dataclass
class StopAtConfig:
    """``callbacks.stop_at.METRIC=VALUE``: end the run at the first validation that is at least as good.

    Attributes:
        accuracy: End at this accuracy or above.
        auc: End at this AUC or above.
        log_loss: End at this log loss or below.
        ne: End at this normalized entropy or below.
    """

    accuracy: float | None = None
    auc: float | None = None
    log_loss: float | None = None
    ne: float | None = None

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``callbacks.stop_at``."""
        return outside_limits(self, {"accuracy": (0, 1), "auc": (0, 1), "log_loss": (0, 1e6), "ne": (0, 1e6)})

    def goals(self) -> tuple[tuple[str, float], ...]:
        """Return the metrics with a goal, each with it."""
        values = {name: getattr(self, name) for name in MAXIMIZED}
        return tuple((name, value) for name, value in values.items() if value is not None)


@dataclass(frozen=True)
class ProfilerSpec:
    """Steps whose trace is written.

    Attributes:
        from_step: The first step that is traced, counted from 1.
        num_steps: Steps that are traced.
        shapes: Whether every operator's input shapes are noted.
        memory: Whether allocations are noted.
    """

    from_step: int
    num_steps: int
    shapes: bool
    memory: bool


@dataclass
class ProfilerConfig:
    """``callbacks.profiler.*``; ``from_step`` switches it on."""

    from_step: int | None = None
    num_steps: int = 3
    shapes: bool = False
    memory: bool = False

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``callbacks.profiler``."""
        findings = outside_limits(self, {"from_step": (1, MAX_STEPS), "num_steps": (1, 1000)})
        if self.from_step is None:
            findings += _idle(self, "from_step", "callbacks.profiler.from_step=10")
        return findings

    def to_spec(self) -> ProfilerSpec | None:
        """Return the frozen form of a valid configuration; None if it is off."""
        if self.from_step is None:
            return None
        return ProfilerSpec(self.from_step, self.num_steps, self.shapes, self.memory)


@dataclass(frozen=True)
class CallbacksSpec:
    """``callbacks.*``, resolved.

    Attributes:
        early_stopping: When a run that gets no better ends; None for never.
        stop_at: Validation metrics, each with the value that ends the run.
        learning_rate_monitor: Whether the learning rates of every step are logged, not only those of logged steps.
        profiler: Steps whose trace is written, or None.
        assert_trained: Whether a run fails whose loss did not fall, or whose parameters or tables did not move.
        own: Names of callbacks of other packages.
        options: Keyword options of theirs, by name.
    """

    early_stopping: EarlyStoppingSpec | None
    stop_at: tuple[tuple[str, float], ...]
    learning_rate_monitor: bool
    profiler: ProfilerSpec | None
    assert_trained: bool
    own: tuple[str, ...]
    options: Mapping[str, Mapping[str, Any]]

    @property
    def watches_validation(self) -> tuple[str, ...]:
        """Keys, relative to ``callbacks``, of what reads validation metrics."""
        goals = [f"stop_at.{name}" for name, _ in self.stop_at]
        return (*(["early_stopping.patience"] if self.early_stopping is not None else []), *goals)


@dataclass
class CallbacksConfig:
    """``callbacks.*``."""

    early_stopping: EarlyStoppingConfig = field(default_factory=EarlyStoppingConfig)
    stop_at: StopAtConfig = field(default_factory=StopAtConfig)
    learning_rate_monitor: bool = False
    profiler: ProfilerConfig = field(default_factory=ProfilerConfig)
    assert_trained: bool = False
    own: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``callbacks``."""
        parts = (("early_stopping", self.early_stopping), ("stop_at", self.stop_at), ("profiler", self.profiler))
        findings = [finding.under(name) for name, part in parts for finding in part.validate()]
        findings += [
            unknown_name("own", name, "callback of an installed package", CALLBACKS)
            for name in self.own
            if name not in CALLBACKS
        ]
        for name, content in self.options.items():
            if not isinstance(content, Mapping):
                fix = f"write ++callbacks.options.{name}.OPTION=VALUE"
                findings.append(Finding(f"options.{name}", "is not a mapping", fix))
            elif name not in self.own:
                problem = f"has no effect: '{name}' is not in callbacks.own"
                findings.append(Finding(f"options.{name}", problem, "leave it out"))
        return findings

    def to_spec(self) -> CallbacksSpec:
        """Return the frozen form of a valid configuration."""
        return CallbacksSpec(
            early_stopping=self.early_stopping.to_spec(),
            stop_at=self.stop_at.goals(),
            learning_rate_monitor=self.learning_rate_monitor,
            profiler=self.profiler.to_spec(),
            assert_trained=self.assert_trained,
            own=tuple(self.own),
            options={name: dict(content) for name, content in self.options.items()},
        )


def _idle(config: Any, switch: str, example: str) -> list[Finding]:
    """Return a finding for each field that is not its default although ``switch``, which turns it on, is null."""
    return [
        Finding(entry.name, f"{as_typed(value)} has no effect without {switch}", f"add {example}, or leave it out")
        for entry in fields(config)
        if (value := getattr(config, entry.name)) != entry.default and entry.name != switch
    ]
