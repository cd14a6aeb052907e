"""The results of a sweep: one row per point, read from its run folder."""

import csv
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import Any

from neo.cli.job import JobEnd
from neo.config.purpose import Purpose
from neo.errors import InfeasiblePlanError
from neo.launch.summary import SUMMARY

CSV = "sweep.csv"
_ESTIMATE = "estimate.json"


class RowStatus(StrEnum):
    """What became of a point; those of ``neo.launch.summary.Status`` and what only a sweep has."""

    DONE = "done"
    FAILED = "failed"
    INFEASIBLE = "infeasible"
    INTERRUPTED = "interrupted"
    PREEMPTED = "preempted"
    NOT_STARTED = "not started"


GOOD = (RowStatus.DONE, RowStatus.INFEASIBLE)


@dataclass(frozen=True)
class Row:
    """The result of a point.

    Attributes:
        number: Its number.
        swept: What the sweep gives its keys.
        status: What became of it.
        folder: Its run folder.
        values: What was measured or estimated, by column; a column without a value is absent.
        error: What ended it; empty if nothing did.
    """

    number: int
    swept: tuple[tuple[str, str], ...]
    status: RowStatus
    folder: Path
    values: Mapping[str, float] = field(default_factory=dict)
    error: str = ""

    @property
    def error_line(self) -> str:
        """The error in one line."""
        return " ".join(self.error.split())


_Reader = Callable[[Mapping[str, Any]], Any]


def _measured(*path: str) -> _Reader:
    def read(content: Mapping[str, Any]) -> Any:
        value: Any = content
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    return read


def _largest(tier: str) -> _Reader:
    """Return the reader of the bytes of a tier on the rank that needs most of it."""

    def read(content: Mapping[str, Any]) -> Any:
        ranks = [rank.get(tier) for rank in content.get("memory") or ()]
        return max((sum(v for k, v in sizes.items() if k != "capacity") for sizes in ranks if sizes), default=None)

    return read


_COLUMNS: Mapping[Purpose, Mapping[str, _Reader]] = {
    Purpose.TRAIN: {
        "auc": _measured("val", "auc"),
        "ne": _measured("val", "ne"),
        "log_loss": _measured("val", "log_loss"),
        "train_loss": _measured("train_loss"),
        "samples_per_s": _measured("samples_per_s"),
        "step_time_s": _measured("step_time_s", "median"),
        "steps": _measured("steps"),
    },
    Purpose.PLAN: {
        "step_time_s": _measured("step_time_s"),
        "hbm_bytes": _largest("hbm"),
        "ddr_bytes": _largest("ddr"),
        "ssd_bytes": _largest("ssd"),
        "imbalance": _measured("imbalance", "bytes"),
    },
}


def columns(purpose: Purpose) -> list[str]:
    """Return the names of what a row may hold as ``values``, in order."""
    return list(_COLUMNS[purpose])


def read_row(
    purpose: Purpose, number: int, swept: tuple[tuple[str, str], ...], folder: Path, end: JobEnd | None
) -> Row:
    """Return the row of a point that was started.

    Args:
        purpose: What the sweep is for.
        number: Number of the point.
        swept: What the sweep gives its keys.
        folder: Its run folder.
        end: How its job ended, if that is known.
    """
    content = _read(folder / (SUMMARY if purpose is Purpose.TRAIN else _ESTIMATE))
    status, error = _outcome(purpose, content, end)
    numbers = {name: read(content) for name, read in _COLUMNS[purpose].items()}
    values = {name: value for name, value in numbers.items() if isinstance(value, int | float)}
    return Row(number, swept, status, folder, values, error)


def _outcome(purpose: Purpose, content: Mapping[str, Any], end: JobEnd | None) -> tuple[RowStatus, str]:
    if not content or (purpose is Purpose.PLAN and end is not None and end.exit_code == 1):
        if end is not None and end.error:
            infeasible = end.exit_code == InfeasiblePlanError.exit_code
            return (RowStatus.INFEASIBLE if infeasible else RowStatus.FAILED), end.error
        return RowStatus.FAILED, "its job ended without a result; see its folder"
    if purpose is Purpose.PLAN:
        feasible = content.get("feasible") is True
        return (RowStatus.DONE if feasible else RowStatus.INFEASIBLE), str(content.get("reason") or "")
    return RowStatus(content["status"]), str(content.get("error") or "")


def recorded_fingerprint(folder: Path) -> str:
    """Return the fingerprint of the configuration with which the run in ``folder`` was made; empty if there is none."""
    return str(_read(folder / SUMMARY).get("config_fingerprint") or "")


def table(purpose: Purpose, rows: Sequence[Row], sweep_dir: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the cells of all rows; numbers in full, folders relative to the sweep's.

    When planning, a memory tier that no point uses has no column.
    """
    keys = list(dict.fromkeys(key for row in rows for key, _ in row.swept))
    names = [name for name in columns(purpose) if purpose is Purpose.TRAIN or any(row.values.get(name) for row in rows)]
    header = [*keys, "status", *names, "folder", "error"]
    cells = []
    for row in rows:
        swept = dict(row.swept)
        numbers = [str(row.values[name]) if name in row.values else "" for name in names]
        folder = os.path.relpath(row.folder, sweep_dir)
        cells.append([*(swept.get(key, "") for key in keys), str(row.status), *numbers, folder, row.error_line])
    return header, cells


def write_csv(purpose: Purpose, rows: Sequence[Row], sweep_dir: Path) -> None:
    """Write ``sweep.csv``, whole or not at all."""
    text = StringIO(newline="")
    header, cells = table(purpose, rows, sweep_dir)
    csv.writer(text).writerows([header, *cells])
    draft = sweep_dir / f"{CSV}.new"
    draft.write_text(text.getvalue(), encoding="utf-8", newline="")
    draft.replace(sweep_dir / CSV)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
