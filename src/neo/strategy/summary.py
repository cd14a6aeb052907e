"""What a run reached: as ``summary.json`` and as a small table."""

import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from neo.comms.spec import CommsSpec, ExchangeMode
from neo.data.synthetic import Attainable
from neo.metrics.binary import BinaryReport, NoAuc
from neo.plan.sharding_plan import ShardingPlan
from neo.planner.exchange import exchange_of, has_pooled_exchange
from neo.strategy.callbacks import Throughput
from neo.strategy.traffic import TrafficPerStep
from neo.units import format_bytes, format_count

_NO_AUC = {
    NoAuc.NO_SAMPLES: "there are no validation samples",
    NoAuc.NOT_FINITE: "the model's logits are not finite; lower optim.sparse.lr or optim.dense.lr, or check the data",
    NoAuc.ONE_CLASS: "all validation samples are of one class",
}
_MOST_FALLBACKS = 12


@dataclass(frozen=True)
class CommsUsed:
    """How pooled vectors and their gradients travelled between ranks.

    Attributes:
        forward: Codec of the vectors; None where none travelled.
        backward: Codec of their gradients; None where none travelled.
        exchange: ``flat`` or ``hierarchical``; None where none travelled.
        loss_scale: Rule of the loss scale; None where the codec takes none.
    """

    forward: str | None
    backward: str | None
    exchange: str | None
    loss_scale: str | None

    @classmethod
    def of(cls, plan: ShardingPlan, comms: CommsSpec) -> "CommsUsed":
        """Return what a plan makes of the settings."""
        if not has_pooled_exchange(plan):
            return cls(None, None, None, None)
        return cls(comms.forward, comms.backward, exchange_of(plan, comms).value, comms.scale_rule)


@dataclass(frozen=True)
class RunOutcome:
    """Everything that rank 0 knows at the end of a run.

    Attributes:
        world_size: Ranks.
        steps: Optimizer steps.
        samples: Training samples over all ranks.
        throughput: Of the steps after the warm-up.
        train_loss: Mean loss of the last step's global batch.
        val: Metrics over the validation samples; None without them.
        attainable: The best quality that is possible, where it is known.
        planned_for: The machine that was planned for.
        executed_on: What it ran on.
        plan_fingerprint: Of plan and tables.
        config_fingerprint: Of the configuration.
        fallbacks: What was replaced, and why.
        out_of_range: Ids that were clamped or dropped, per table.
        column_wise_semantics: ``per_shard`` if column shards keep their own row-wise state.
        comms: How pooled vectors travelled.
        optimizer: Name of the sparse optimizer.
        weights_dtype: Type of the tables' weights.
        traffic: Bytes that the tables send in a training step; None without a step.
        status: ``done`` or ``preempted``.
        checkpoint: The newest checkpoint, relative to the run folder; None without one.
        resumed_from: The checkpoint that the run went on from; None after a fresh start.
    """

    world_size: int
    steps: int
    samples: int
    throughput: Throughput
    train_loss: float | None
    val: BinaryReport | None
    attainable: Attainable | None
    planned_for: str
    executed_on: str
    plan_fingerprint: str
    config_fingerprint: str
    fallbacks: tuple[str, ...]
    out_of_range: Mapping[str, int]
    column_wise_semantics: str | None
    comms: CommsUsed
    optimizer: str
    weights_dtype: str
    traffic: TrafficPerStep | None = None
    status: str = "done"
    checkpoint: str | None = None
    resumed_from: str | None = None

    def to_dict(self, versions: Mapping[str, str]) -> dict[str, Any]:
        """Return the content of ``summary.json``."""
        known = measured(
            steps=self.steps, samples=self.samples, throughput=self.throughput, train_loss=self.train_loss, val=self.val
        )
        data: dict[str, Any] = {"out_of_range": {table: count for table, count in self.out_of_range.items() if count}}
        if self.attainable is not None:
            data |= {"attainable_auc": self.attainable.auc, "attainable_ne": self.attainable.ne}
        return {
            "status": self.status,
            "world_size": self.world_size,
            **known,
            "data": data,
            "optimizer": {"sparse": self.optimizer, "weights_dtype": self.weights_dtype},
            "comms": asdict(self.comms),
            "traffic_bytes_per_step": None if self.traffic is None else asdict(self.traffic),
            "checkpoint": self.checkpoint,
            "resumed_from": self.resumed_from,
            "planned_for": self.planned_for,
            "executed_on": self.executed_on,
            "plan_fingerprint": self.plan_fingerprint,
            "config_fingerprint": self.config_fingerprint,
            "column_wise_semantics": self.column_wise_semantics,
            "fallbacks": list(self.fallbacks),
            "versions": dict(versions),
        }


def measured(
    *, steps: int, samples: int, throughput: Throughput, train_loss: float | None, val: BinaryReport | None
) -> dict[str, Any]:
    """Return the part of ``summary.json`` that is measured, so far or in all."""
    return {
        "steps": steps,
        "samples": samples,
        "samples_per_s": throughput.samples_per_s,
        "step_time_s": {"median": throughput.median_s, "p10": throughput.p10_s, "p90": throughput.p90_s},
        "train_loss": train_loss,
        "val": None if val is None else asdict(val),
    }


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Write ``summary.json``, null for what is not finite; an existing file is replaced in one step."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    draft.write_text(json.dumps(_finite(summary), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    draft.replace(path)


def print_summary(outcome: RunOutcome, console: Console) -> None:
    """Print what was reached, beside what could be reached where that is known."""
    table = Table(box=None, pad_edge=False, show_header=outcome.attainable is not None, header_style="")
    for column in ("", "reached", "attainable"):
        table.add_column(column, justify="left" if column == "" else "right")
    for name, reached, attainable in _quality_rows(outcome):
        table.add_row(name, reached, attainable)
    table.add_row("train loss", _number(outcome.train_loss), "")
    rate, median_s = outcome.throughput.samples_per_s, outcome.throughput.median_s
    if rate is not None and median_s is not None:
        table.add_row("samples/s", format_count(rate), "")
        table.add_row("step time", f"{median_s * 1e3:.1f} ms", "")
    used = outcome.comms
    if {used.forward, used.backward} - {None, "fp32"} or used.exchange == ExchangeMode.HIERARCHICAL:
        table.add_row("exchange", f"{used.exchange}, {used.forward} forward, {used.backward} backward", "")
    if outcome.traffic is not None and outcome.traffic.between_nodes > 0:
        table.add_row("sent between nodes", f"{format_bytes(round(outcome.traffic.between_nodes))} a step", "")
    table.add_row("trained on", f"{format_count(outcome.samples)} samples in {outcome.steps} steps", "")
    for line in _lines(table, console.width):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    for line in _remarks(outcome):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _lines(table: Table, width: int) -> list[str]:
    """Return the lines of a table without the blanks that fill up its empty cells."""
    drawn = io.StringIO()
    Console(file=drawn, width=width, color_system=None, force_terminal=False).print(table, highlight=False)
    return [line.rstrip() for line in drawn.getvalue().splitlines()]


def _quality_rows(outcome: RunOutcome) -> list[tuple[str, str, str]]:
    val, best = outcome.val, outcome.attainable
    if val is None:
        return []
    return [
        ("AUC", _number(val.auc), _number(best.auc) if best is not None else ""),
        ("normalized entropy", _number(val.ne), _number(best.ne) if best is not None else ""),
        ("log loss", _number(val.log_loss), ""),
        ("accuracy", _number(val.accuracy), ""),
        ("calibration", _number(val.calibration), ""),
        ("validated on", f"{format_count(val.samples)} samples", ""),
    ]


def _remarks(outcome: RunOutcome) -> list[str]:
    remarks = []
    if outcome.status == "preempted":
        remarks.append(f"preempted: saved as {outcome.checkpoint}; go on with checkpoint.resume=auto")
    if outcome.val is not None and outcome.val.no_auc is not None:
        remarks.append(f"no AUC: {_NO_AUC[outcome.val.no_auc]}")
    for table, count in outcome.out_of_range.items():
        if count:
            remarks.append(f"table {table}: {count} ids out of range were repaired")
    if outcome.column_wise_semantics == "per_shard":
        remarks.append("column shards keep their own row-wise optimizer state (column_wise_semantics: per_shard)")
    remarks += [f"fallback: {line}" for line in outcome.fallbacks[:_MOST_FALLBACKS]]
    if len(outcome.fallbacks) > _MOST_FALLBACKS:
        remarks.append(f"{len(outcome.fallbacks) - _MOST_FALLBACKS} more fallbacks; summary.json lists them all")
    return remarks


def _finite(value: Any) -> Any:
    """Return the value with None in place of every number that JSON cannot hold."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
