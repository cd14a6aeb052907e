"""Line charts as inline SVG; colors and type come from the page's style."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from neo.launch.page.history import Point
from neo.units import format_count

_WIDTH, _HEIGHT = 520, 236
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 14, 34
_MARKED = 40  # so few points each have a dot


@dataclass(frozen=True)
class Line:
    """One line of a chart; ``name`` is empty where there is only one."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Chart:
    """What a chart shows.

    Attributes:
        title: Above it.
        lines: Over the steps.
        limit: A value that is drawn as a dashed line, or None.
        limit_name: What it is.
        from_zero: Whether the axis begins at 0.
    """

    title: str
    lines: Sequence[Line]
    limit: float | None = None
    limit_name: str = ""
    from_zero: bool = False


def draw(chart: Chart) -> str:
    """Return a ``<figure>``; empty if no line has a point."""
    lines = [line for line in chart.lines if line.points]
    if not lines:
        return ""
    plane = _Plane.of(chart, lines)
    parts = [*plane.grid(), *_limit(chart, plane)]
    for index, line in enumerate(lines):
        parts += _line(line, index, plane)
    legend = "".join(
        f'<span class="key c{index}">{escape(line.name)}</span>' for index, line in enumerate(lines) if line.name
    )
    if chart.limit is not None:
        legend += f'<span class="key limit">{escape(chart.limit_name)} {chart.limit:.4f}</span>'
    caption = f"<figcaption><b>{escape(chart.title)}</b><span>{legend}</span></figcaption>"
    svg = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(chart.title)}">{"".join(parts)}</svg>'
    return f"<figure>{caption}{svg}</figure>"


def number(value: float) -> str:
    """Return a number with four significant digits, large ones with a unit."""
    if abs(value) >= 1000:
        return format_count(value)
    return f"{value:.4g}"


@dataclass(frozen=True)
class _Plane:
    """Where values are on the picture."""

    x_ticks: Sequence[float]
    y_ticks: Sequence[float]
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    @classmethod
    def of(cls, chart: Chart, lines: Sequence[Line]) -> "_Plane":
        xs = [x for line in lines for x, _ in line.points]
        ys = [y for line in lines for _, y in line.points]
        if chart.limit is not None:
            ys.append(chart.limit)
        low, high = (0.0 if chart.from_zero else min(ys)), max(ys)
        margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
        y_range = (low if chart.from_zero else low - margin, high + margin)
        x_range = (0.0, max(1.0, *xs))
        return cls(_ticks(*x_range, 8, whole=True), _ticks(*y_range, 8), x_range, y_range)

    def x(self, step: float) -> float:
        low, high = self.x_range
        return _LEFT + (step - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    def grid(self) -> list[str]:
        """Return the grid with its numbers."""
        floor = _HEIGHT - _BOTTOM
        parts = []
        for tick, text in zip(self.y_ticks, _texts(self.y_ticks), strict=True):
            y = self.y(tick)
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="y" x="{_LEFT - 8}" y="{y + 4:.1f}">{text}</text>')
        for tick, text in zip(self.x_ticks, _texts(self.x_ticks), strict=True):
            x = self.x(tick)
            parts.append(f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{floor}" y2="{floor + 4}"/>')
            parts.append(f'<text class="x" x="{x:.1f}" y="{floor + 18}">{text}</text>')
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{floor}" y2="{floor}"/>')
        return parts


def _limit(chart: Chart, plane: _Plane) -> list[str]:
    if chart.limit is None:
        return []
    y = plane.y(chart.limit)
    return [f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>']


def _line(line: Line, index: int, plane: _Plane) -> list[str]:
    at = [(plane.x(step), plane.y(value)) for step, value in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    parts = [f'<polyline class="c{index}" points="{path}"/>'] if len(at) > 1 else []
    marked = range(len(at)) if len(at) <= _MARKED else [len(at) - 1]
    for place in marked:
        (x, y), (step, value) = at[place], line.points[place]
        title = f"<title>{escape(line.name)} step {step:.0f}: {number(value)}</title>"
        parts.append(f'<circle class="c{index}" cx="{x:.1f}" cy="{y:.1f}" r="2.6">{title}</circle>')
    return parts


def _ticks(low: float, high: float, most: int, *, whole: bool = False) -> list[float]:
    """Return round numbers within a range, at most one more than ``most``."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    step = max(1.0, step) if whole else step
    first = math.ceil(low / step - 1e-9)
    return [place * step for place in range(first, math.floor(high / step + 1e-9) + 1)]


def _texts(ticks: Sequence[float]) -> list[str]:
    """Return the numbers of an axis, all with as many digits as tell them apart."""
    if not ticks:
        return []
    largest = max(abs(tick) for tick in ticks)
    scale, unit = next(((s, u) for s, u in ((1e9, " G"), (1e6, " M"), (1e4, " k")) if largest >= s), (1.0, ""))
    scale = 1e3 if unit == " k" else scale
    step = (ticks[1] - ticks[0]) / scale if len(ticks) > 1 else max(largest / scale, 1e-12)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    if digits > 5:
        return [f"{tick:.2g}" for tick in ticks]
    return [f"{tick / scale:.{digits}f}{unit if tick else ''}" for tick in ticks]
