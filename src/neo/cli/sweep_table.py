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

_PLAIN_WIDTH = 160  # Where the output is no terminal, lines may be long.
_MOST_ERROR = 300
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
    """Print one line per point, and below the table what ended those that were ended."""
    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    shown = console or Console(width=width, highlight=False, emoji=False, markup=False)
    header, cells = table(purpose, rows, sweep_dir)
    values = columns(purpose)
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    kept = [at for at, name in enumerate(header) if name != "error" and (name not in values or _has(rows, name))]
    for name in (header[at] for at in kept):
        number = name in values
        heading = shown_name(name) if number else name
        result.add_column(heading, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row, texts in zip(rows, cells, strict=True):
        result.add_row(*(_cell(header[at], texts[at], row) for at in kept))
    shown.print(result)
    for row in rows:
        if row.error:
            line = row.error_line if len(row.error_line) <= _MOST_ERROR else f"{row.error_line[:_MOST_ERROR]}…"
            shown.print(Text(f"point {row.number} {row.status}: {line}", style=STYLES[row.status]))


def _has(rows: Sequence[Row], name: str) -> bool:
    return any(name in row.values for row in rows)


def _cell(name: str, text: str, row: Row) -> Text:
    if name == "status":
        return Text(text, style=STYLES[row.status])
    return Text(shown_value(name, row.values[name]) if name in row.values else text)
