"""Trainer configuration, torch-free: how long, on what and in which precision a run trains."""

from dataclasses import dataclass
from enum import StrEnum

from neo.errors import Finding, unknown_name
from neo.limits import MAX_RANKS, MAX_STEPS, outside, outside_limits
from neo.ops.spec import Device
from neo.strategy.callback_options import CALLBACKS, CallbacksConfig, CallbacksSpec
from neo.strategy.logger_options import LOGGERS, LoggerConfig, LoggerSpec, register_logger

__all__ = [
    "CALLBACKS",
    "LOGGERS",
    "PLANNED_FACTS",
    "Accelerator",
    "CallbacksConfig",
    "CallbacksSpec",
    "LoggerConfig",
    "LoggerSpec",
    "MatmulPrecision",
    "Pipeline",
    "Precision",
    "TrainerConfig",
    "TrainerSpec",
    "executed_on",
    "register_logger",
]

PLANNED_FACTS = "planned.json"
"""Where the launching process leaves what it knows before the workers start."""
AUTO = "auto"
_MAX_DEVICES = 1024
_LIMITS = {
    "num_nodes": (1, MAX_RANKS),
    "log_every_n_steps": (1, MAX_STEPS),
    "max_steps": (1, MAX_STEPS),
    "max_epochs": (1, MAX_STEPS),
}


class Precision(StrEnum):
    """Arithmetic of the dense part; embedding tables and optimizer states keep their own types."""

    FP32_TRUE = "32-true"
    BF16_MIXED = "bf16-mixed"


class MatmulPrecision(StrEnum):
    """Precision of fp32 matrix products, in the words of ``torch.set_float32_matmul_precision``."""

    HIGHEST = "highest"
    HIGH = "high"
    MEDIUM = "medium"


class Accelerator(StrEnum):
    """What the workers run on; ``auto`` takes CUDA where there is a GPU."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class Pipeline(StrEnum):
    """How batches overlap. ``none`` finishes one before the next starts."""

    NONE = "none"


_SCALER = "its loss scaler would multiply the gradients that the fused sparse optimizers consume"
_SMALL_UPDATES = "half-precision weights lose small updates"
_WHY_NOT = {"16-mixed": _SCALER, "16": _SCALER, "16-true": _SMALL_UPDATES, "bf16-true": _SMALL_UPDATES}


@dataclass(frozen=True)
class TrainerSpec:
    """``trainer.*``, resolved.

    Attributes:
        devices: Processes per node; ``auto`` means one per GPU, and two where there is none.
        num_nodes: Nodes.
        max_steps: Steps (global batches) after which training ends, or None.
        max_epochs: Passes over the data after which training ends, or None; whichever comes first.
        precision: Arithmetic of the dense part.
        matmul_precision: Precision of fp32 matrix products.
        accelerator: What the workers run on.
        pipeline: How batches overlap.
        log_every_n_steps: Steps between two log lines.
        progress_bar: Whether rank 0 shows a progress bar.
        throughput_warmup_steps: First steps that ``samples_per_s`` and ``step_time_s`` leave out.
        val_check_interval: Steps of the run between two validations, or, with a fraction of at most 1.0, the part of
            an epoch; None validates at the end of every epoch.
        limit_val_batches: Global batches of a validation, or, with a fraction, the part of them; None takes all.
    """

    devices: int | None
    num_nodes: int
    max_steps: int | None
    max_epochs: int | None
    precision: Precision
    matmul_precision: MatmulPrecision
    accelerator: Accelerator
    pipeline: Pipeline
    log_every_n_steps: int
    progress_bar: bool
    throughput_warmup_steps: int
    val_check_interval: int | float | None = None
    limit_val_batches: int | float | None = None


@dataclass
class TrainerConfig:
    """``trainer.*``."""

    devices: int | str = AUTO
    num_nodes: int = 1
    max_steps: int | None = None
    max_epochs: int | None = 1
    precision: str = Precision.FP32_TRUE.value
    matmul_precision: str = MatmulPrecision.HIGHEST.value
    accelerator: str = Accelerator.AUTO.value
    pipeline: str = Pipeline.NONE.value
    log_every_n_steps: int = 50
    progress_bar: bool = True
    throughput_warmup_steps: int = 5
    val_check_interval: int | float | None = None
    limit_val_batches: int | float | None = None

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``trainer``."""
        findings = [*self._counts(), *self._validation(), *self._precision()]
        for key, kind, names in (
            ("matmul_precision", "matmul precision", list(MatmulPrecision)),
            ("accelerator", "kind of accelerator", list(Accelerator)),
            ("pipeline", "pipeline", list(Pipeline)),
        ):
            if (name := getattr(self, key)) not in names:
                findings.append(unknown_name(key, name, kind, names))
        return findings

    def _counts(self) -> list[Finding]:
        findings = []
        if isinstance(self.devices, str) and self.devices != AUTO:
            findings.append(Finding("devices", f"'{self.devices}' is neither 'auto' nor a number of processes"))
        if isinstance(self.devices, int):
            findings += outside("devices", self.devices, 1, _MAX_DEVICES)
        findings += outside_limits(self, _LIMITS)
        if self.max_steps is None and self.max_epochs is None:
            findings.append(Finding("max_epochs", "null, and max_steps too: training would never end", "set one"))
        return findings + outside("throughput_warmup_steps", self.throughput_warmup_steps, 0, MAX_STEPS)

    def _validation(self) -> list[Finding]:
        """A whole number counts, a number with a point is a part: ``1`` is one step, ``1.0`` a whole epoch."""
        findings = []
        for key, least in (("val_check_interval", 1), ("limit_val_batches", 0)):
            value = getattr(self, key)
            if isinstance(value, float) and not 0 < value <= 1:
                findings.append(Finding(key, f"{value} is no part in (0, 1]", f"write a part, or a count from {least}"))
            elif isinstance(value, int):
                findings += outside(key, value, least, MAX_STEPS)
        return findings

    def _precision(self) -> list[Finding]:
        if self.precision in list(Precision):
            return []
        if self.precision in _WHY_NOT:
            problem = f"'{self.precision}' is refused: {_WHY_NOT[self.precision]}"
            return [Finding("precision", problem, f"use {' or '.join(sorted(Precision, reverse=True))}")]
        return [unknown_name("precision", self.precision, "precision", list(Precision))]

    def to_spec(self) -> TrainerSpec:
        """Return the frozen form of a valid configuration."""
        return TrainerSpec(
            devices=self.devices if isinstance(self.devices, int) else None,
            num_nodes=self.num_nodes,
            max_steps=self.max_steps,
            max_epochs=self.max_epochs,
            precision=Precision(self.precision),
            matmul_precision=MatmulPrecision(self.matmul_precision),
            accelerator=Accelerator(self.accelerator),
            pipeline=Pipeline(self.pipeline),
            log_every_n_steps=self.log_every_n_steps,
            progress_bar=self.progress_bar,
            throughput_warmup_steps=self.throughput_warmup_steps,
            val_check_interval=self.val_check_interval,
            limit_val_batches=self.limit_val_batches,
        )


def executed_on(device: Device, world_size: int) -> str:
    """Return what a run is executed on, in words: ``2 CPU processes (gloo)``."""
    noun = {Device.CPU: "CPU process", Device.CUDA: "CUDA GPU"}[device]
    plural = "" if world_size == 1 else ("es" if noun.endswith("s") else "s")
    return f"{world_size} {noun}{plural} ({'nccl' if device is Device.CUDA else 'gloo'})"
