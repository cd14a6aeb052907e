"""The results of a sweep as a table on the terminal."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from neo.cli.sweep_rows import Row, RowStatus, columns, table
from neo.config.purpose import Purpose
from neo.units import format_bytes

_PLAIN_WIDTH = 200  # Where the output is no terminal, lines may be long.
_MOST_ERROR = 100
STYLES: Mapping[RowStatus, str] = {
    RowStatus.DONE: "green",
    RowStatus.INFEASIBLE: "yellow",
    RowStatus.FAILED: "red",
    RowStatus.INTERRUPTED: "red",
    RowStatus.PREEMPTED: "yellow",
    RowStatus.NOT_STARTED: "dim",
}
_FORMATS: Mapping[str, Callable[[float], str]] = {
    "samples_per_s": lambda value: f"{value:,.0f}",
    "steps": lambda value: f"{value:,.0f}",
    "step_time_s": lambda value: f"{value * 1e3:.3g} ms",
    "hbm_bytes": lambda value: format_bytes(int(value)),
    "ddr_bytes": lambda value: format_bytes(int(value)),
    "ssd_bytes": lambda value: format_bytes(int(value)),
    "imbalance": lambda value: f"{value:.2f}",
}


def shown_value(column: str, value: float) -> str:
    """Return a value of a row as people read it."""
    return _FORMATS[column](value) if column in _FORMATS else f"{value:.5f}"


def shown_name(column: str) -> str:
    """Return the heading of a column: a unit that is shown with the values is left out."""
    return (
        "samples/s" if column == "samples_per_s" else column.removesuffix("_s").removesuffix("_bytes").replace("_", " ")
    )


def print_table(purpose: Purpose, rows: Sequence[Row], sweep_dir: Path, *, console: Console | None = None) -> None:
    """Print one line per point."""
    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    shown = console or Console(width=width, highlight=False, emoji=False, markup=False)
    header, cells = table(purpose, rows, sweep_dir)
    values = columns(purpose)
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in header:
        number = name in values
        result.add_column(
            shown_name(name) if number else name,
            justify="right" if number else "left",
            no_wrap=name != "error",
            overflow="ellipsis",
        )
    for row, texts in zip(rows, cells, strict=True):
        line = [_cell(name, text, row) for name, text in zip(header, texts, strict=True)]
        result.add_row(*line)
    shown.print(result)


def _cell(name: str, text: str, row: Row) -> Text:
    if name == "status":
        return Text(text, style=STYLES[row.status])
    if name in row.values:
        return Text(shown_value(name, row.values[name]))
    if name == "error" and len(text) > _MOST_ERROR:
        return Text(f"{text[:_MOST_ERROR]}…")
    return Text(text)
