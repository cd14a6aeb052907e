"""The curves of a run, read back from what the CSV logger wrote."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

METRICS = Path("logs", "metrics.csv")
_MOST_POINTS = 1000

Point = tuple[float, float]


@dataclass(frozen=True)
class History:
    """Every logged value by name: ``(step, value)`` in the order of the steps.

    Attributes:
        series: By the name of the column, ``train/loss``; without steps of no value.
    """

    series: dict[str, tuple[Point, ...]]

    def points(self, name: str) -> tuple[Point, ...]:
        """Return a series, at most 1,000 points of it; empty if it was never logged."""
        return _thinned(self.series.get(name, ()))

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with ``prefix``."""
        return sorted(name for name in self.series if name.startswith(prefix))


def read_history(run_dir: Path) -> History:
    """Read ``logs/metrics.csv``; a run that logged none has an empty history, a broken line is passed over."""
    try:
        with (run_dir / METRICS).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, csv.Error, UnicodeDecodeError):
        return History({})
    series: dict[str, dict[float, float]] = {}
    for row in rows:
        step = _number(row.get("step"))
        for name, text in row.items():
            value = _number(text)
            if step is not None and value is not None and name != "step":
                series.setdefault(name, {})[step] = value
    return History({name: tuple(sorted(values.items())) for name, values in series.items()})


def _number(text: object) -> float | None:
    try:
        value = float(text) if isinstance(text, str) else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _thinned(points: Sequence[Point]) -> tuple[Point, ...]:
    stride = -(-len(points) // _MOST_POINTS)
    kept = tuple(points[::stride]) if stride > 1 else tuple(points)
    return kept if not points or kept[-1] == points[-1] else (*kept, points[-1])
