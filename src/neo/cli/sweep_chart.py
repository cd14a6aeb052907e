"""The results of a sweep as one self-contained HTML page: a row per point, a panel per figure, drawn in SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from neo.cli.sweep_rows import Row, RowStatus, columns
from neo.cli.sweep_table import shown_name, shown_value
from neo.config.points import label
from neo.config.purpose import Purpose

CHART = "sweep.html"
_NOT_DRAWN = ("steps",)
_FROM_ZERO = ("samples_per_s", "step_time_s", "hbm_bytes", "ddr_bytes", "ssd_bytes")
"""Drawn as bars; the others, whose differences count, as dots on an axis of their own range."""
_MORE_IS_BETTER = ("auc", "samples_per_s")
_NO_DIFFERENCE = 1e-4  # Relative; world sizes differ by less than that in the same training.
_ROW, _TOP, _GAP, _PANEL, _NUMBER, _STATUS = 26, 34, 24, 110, 80, 92
_CHARACTER, _MOST_LABEL, _ERROR_WIDTH = 7.3, 60, 560
_COLORS: Mapping[RowStatus, str] = {
    RowStatus.DONE: "#1a7f37",
    RowStatus.INFEASIBLE: "#9a6700",
    RowStatus.FAILED: "#cf222e",
    RowStatus.INTERRUPTED: "#cf222e",
    RowStatus.PREEMPTED: "#9a6700",
    RowStatus.NOT_STARTED: "#6e7781",
}
_MARK, _BEST = "#8fb3d9", "#0b5cad"
_STYLE = (
    "svg{max-width:100%;height:auto}"
    "body{margin:24px;background:#fff;color:#1f2328;font:14px system-ui,sans-serif}h1{font-size:20px}"
    "svg text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1f2328}svg .head{font-weight:600}"
    "svg .dim{fill:#6e7781}p{color:#59636e}"
)


@dataclass(frozen=True)
class _Panel:
    """One figure of all points.

    Attributes:
        name: Its column.
        left: Where it begins.
        low: Value at its left edge.
        high: Value at its right edge.
        best: The best value.
    """

    name: str
    left: float
    low: float
    high: float
    best: float

    def place(self, value: float) -> float:
        """Return how far right of its left edge a value lies."""
        return _PANEL / 2 if self.is_flat else _PANEL * (value - self.low) / (self.high - self.low)

    @property
    def is_flat(self) -> bool:
        """Whether all values are equal, up to a difference that means nothing."""
        return self.high - self.low <= _NO_DIFFERENCE * abs(self.high)


def write_chart(purpose: Purpose, rows: Sequence[Row], sweep_dir: Path) -> Path:
    """Write ``sweep.html`` and return its path; nothing in it is loaded from elsewhere."""
    counts = [f"{sum(row.status is status for row in rows)} {status}" for status in RowStatus]
    summary = ", ".join(count for count in counts if not count.startswith("0 "))
    title = f"Sweep {sweep_dir.name}"
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>{escape(title)}</h1>\n<p>{escape(summary)}. "
        "A dark mark is the best of its column; dots lie on an axis from the smallest to the largest value, "
        "bars begin at 0.</p>\n"
        f"{chart_svg(purpose, rows)}\n</body></html>\n"
    )
    path = sweep_dir / CHART
    draft = sweep_dir / f"{CHART}.new"
    draft.write_text(page, encoding="utf-8")
    draft.replace(path)
    return path


def chart_svg(purpose: Purpose, rows: Sequence[Row]) -> str:
    """Return the drawing alone, as an SVG image."""
    labels = [_shortened(f"{row.number}  {label(row.swept)}") for row in rows]
    label_width = _CHARACTER * max((len(text) for text in labels), default=0) + _GAP
    panels = _panels(purpose, rows, label_width + _STATUS)
    shows_error = any(row.error for row in rows)
    right = panels[-1].left + _PANEL + _NUMBER if panels else label_width + _STATUS
    width = max(right, label_width + _STATUS + (_ERROR_WIDTH if shows_error else 0)) + _GAP
    height = _TOP + _ROW * len(rows) + 10
    parts = [_text(panel.left, _TOP - 14, shown_name(panel.name), "head") for panel in panels]
    for index, (row, text) in enumerate(zip(rows, labels, strict=True)):
        parts += _row(row, text, _TOP + _ROW * index, label_width, width, panels)
    style = f"<style>{_STYLE}</style>"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}">{style}\n' + "\n".join(parts) + "\n</svg>"
    )


def _panels(purpose: Purpose, rows: Sequence[Row], left: float) -> list[_Panel]:
    panels: list[_Panel] = []
    for name in columns(purpose):
        values = [row.values[name] for row in rows if name in row.values]
        if not any(values) or name in _NOT_DRAWN:
            continue
        best = max(values) if name in _MORE_IS_BETTER else min(values)
        low = 0.0 if name in _FROM_ZERO else min(values)
        panels.append(_Panel(name, left, low, max(values), best))
        left += _PANEL + _NUMBER + _GAP
    return panels


def _row(row: Row, text: str, top: float, label_width: float, width: float, panels: Sequence[_Panel]) -> list[str]:
    middle = top + _ROW / 2
    parts = [
        f'<line x1="0" y1="{top}" x2="{width:.0f}" y2="{top}" stroke="#e5e8eb"/>',
        f"<g><title>{escape(label(row.swept))}</title>{_text(0, middle + 4, text)}</g>",
        _text(label_width, middle + 4, str(row.status), color=_COLORS[row.status]),
    ]
    if not row.values:
        most = int((width - label_width - _STATUS) / _CHARACTER)
        error = f"<title>{escape(row.error)}</title>" + _text(
            label_width + _STATUS, middle + 4, _shortened(row.error_line, most), "dim"
        )
        return [*parts, f"<g>{error}</g>"]
    return parts + [_mark(panel, row.values[panel.name], middle) for panel in panels if panel.name in row.values]


def _mark(panel: _Panel, value: float, middle: float) -> str:
    color = _BEST if value == panel.best and not panel.is_flat else _MARK
    end = panel.place(value)
    if panel.name in _FROM_ZERO:
        drawn = f'<rect x="{panel.left:.1f}" y="{middle - 6}" width="{max(end, 1):.1f}" height="12" fill="{color}"/>'
    else:
        drawn = (
            f'<line x1="{panel.left:.1f}" y1="{middle}" x2="{panel.left + _PANEL:.1f}" y2="{middle}" '
            f'stroke="#d0d7de"/><circle cx="{panel.left + end:.1f}" cy="{middle}" r="5" fill="{color}"/>'
        )
    return drawn + _text(panel.left + _PANEL + 10, middle + 4, shown_value(panel.name, value))


def _text(left: float, baseline: float, text: str, kind: str = "", *, color: str = "") -> str:
    style = f' style="fill:{color}"' if color else ""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{left:.1f}" y="{baseline:.1f}"{named}{style} xml:space="preserve">{escape(text)}</text>'


def _shortened(text: str, most: int = _MOST_LABEL) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
