"""``summary.html``: what summary, CSV log, plan and configuration of a run folder say, on one page."""

import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from neo.launch.page import PAGE
from neo.launch.page.chart import Chart, Line, draw, number
from neo.launch.page.history import History, read_history
from neo.launch.page.placement import placement
from neo.units import format_bytes, format_count


def write_page(run_dir: Path, summary: Mapping[str, Any]) -> None:
    """Write ``summary.html``. A page that cannot be made is told on stderr and spoils no run.

    Args:
        run_dir: The run folder.
        summary: What ``summary.json`` holds.
    """
    draft = run_dir / f"{PAGE}.{os.getpid()}.tmp"
    try:
        draft.write_text(page(run_dir, summary), encoding="utf-8")
        draft.replace(run_dir / PAGE)
    except Exception as error:
        print(f"{run_dir / PAGE} cannot be written: {type(error).__name__}: {error}", file=sys.stderr)


def page(run_dir: Path, summary: Mapping[str, Any]) -> str:
    """Return the text of the page."""
    style = files("neo.launch.page").joinpath("page.css").read_text(encoding="utf-8")
    name = run_dir.resolve().name
    status = str(summary.get("status", "unknown"))
    body = "".join(
        (
            f'<h1>{escape(name)} <span class="badge {escape(status)}">{escape(status)}</span></h1>',
            _facts(summary),
            _error(summary),
            _tiles(summary),
            _curves(read_history(run_dir), summary),
            f"<h2>Plan</h2>{placement(run_dir)}",
            _fallbacks(summary),
            f"<h2>Details</h2>{_details(summary)}",
            f"<h2>Versions</h2>{_pairs(summary.get('versions') or {})}",
            _configuration(run_dir),
        )
    )
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(name)}: {escape(status)}</title><style>{style}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>{body}</main></body></html>\n'


def _facts(summary: Mapping[str, Any]) -> str:
    written = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [f"planned for {summary['planned_for']}"] if summary.get("planned_for") else []
    parts += [f"executed on {summary['executed_on']}"] if summary.get("executed_on") else []
    return f'<p class="facts">{escape(" · ".join([*parts, written]))}</p>'


def _error(summary: Mapping[str, Any]) -> str:
    error = summary.get("error")
    return f'<div class="box error">{escape(str(error).strip())}</div>' if error else ""


def _tiles(summary: Mapping[str, Any]) -> str:
    val, data = summary.get("val") or {}, summary.get("data") or {}
    step_s = (summary.get("step_time_s") or {}).get("median")
    tiles = [
        ("AUC", val.get("auc"), _of("attainable", data.get("attainable_auc"))),
        ("normalized entropy", val.get("ne"), _of("attainable", data.get("attainable_ne"))),
        ("log loss", val.get("log_loss"), _counted("on", val.get("samples"), "samples")),
        ("train loss", summary.get("train_loss"), "of the last step"),
        ("samples/s", summary.get("samples_per_s"), "" if step_s is None else f"{step_s * 1e3:.1f} ms a step"),
        ("steps", summary.get("steps"), _counted("", summary.get("samples"), "samples")),
    ]
    drawn = [_tile(name, value, remark) for name, value, remark in tiles if value is not None]
    return f'<div class="tiles">{"".join(drawn)}</div>' if drawn else "<p>Nothing was measured.</p>"


def _tile(name: str, value: float, remark: str) -> str:
    if name in ("samples/s", "steps"):
        text = f"{value:,.0f}" if value < 100_000 else format_count(value)
    else:
        text = f"{value:.4f}"
    return f'<div class="tile"><span>{name}</span><b>{text}</b><span>{escape(remark)}</span></div>'


def _of(word: str, value: float | None) -> str:
    return "" if value is None else f"{word} {value:.4f}"


def _counted(before: str, count: float | None, noun: str) -> str:
    return "" if count is None else f"{before} {format_count(count)} {noun}".strip()


def _curves(history: History, summary: Mapping[str, Any]) -> str:
    data = summary.get("data") or {}
    loss = [Line("training", history.points("train/loss")), Line("validation", history.points("val/log_loss"))]
    charts = [
        Chart("Loss", loss),
        Chart("Validation AUC", [Line("", history.points("val/auc"))], data.get("attainable_auc"), "attainable"),
        Chart(
            "Validation normalized entropy",
            [Line("", history.points("val/ne"))],
            data.get("attainable_ne"),
            "attainable",
        ),
        Chart("Samples per second", [Line("", history.points("train/samples_per_s"))], from_zero=True),
    ]
    rates = [Line(name.removeprefix("lr/"), history.points(name)) for name in history.names("lr/")]
    if any(len({value for _, value in line.points}) > 1 for line in rates):
        charts.append(Chart("Learning rate", rates, from_zero=True))
    drawn = "".join(draw(chart) for chart in charts)
    if not drawn:
        return '<h2>Curves</h2><p class="soft">Nothing was logged as CSV (the logger csv makes the curves).</p>'
    return f'<h2>Curves <span class="soft">over the steps</span></h2><div class="curves">{drawn}</div>'


def _fallbacks(summary: Mapping[str, Any]) -> str:
    lines = summary.get("fallbacks") or []
    if not lines:
        return '<h2>Fallbacks</h2><p class="soft">None: everything ran as it was asked for.</p>'
    return f"<h2>Fallbacks</h2><ul>{''.join(f'<li>{escape(str(line))}</li>' for line in lines)}</ul>"


def _details(summary: Mapping[str, Any]) -> str:
    val, optimizer = summary.get("val") or {}, summary.get("optimizer") or {}
    comms, traffic = summary.get("comms") or {}, summary.get("traffic_bytes_per_step") or {}
    times = summary.get("step_time_s") or {}
    pairs: dict[str, object] = {
        "world size": summary.get("world_size"),
        "step time, 10th to 90th percentile": None
        if times.get("p10") is None
        else f"{times['p10'] * 1e3:.1f} to {times['p90'] * 1e3:.1f} ms",
        "accuracy": val.get("accuracy"),
        "calibration": val.get("calibration"),
        "sparse optimizer": optimizer.get("sparse"),
        "type of the tables": optimizer.get("weights_dtype"),
        "pooled exchange": comms.get("exchange"),
        "codecs": None if not comms.get("forward") else f"{comms['forward']} forward, {comms['backward']} backward",
        **{f"bytes a step, {name.replace('_', ' ')}": format_bytes(sent) for name, sent in traffic.items()},
        "column-wise semantics": summary.get("column_wise_semantics"),
        "plan": summary.get("plan_fingerprint"),
        "configuration": summary.get("config_fingerprint"),
    }
    return _pairs({name: value for name, value in pairs.items() if value is not None})


def _pairs(pairs: Mapping[str, object]) -> str:
    rows = "".join(
        f'<tr><td class="soft">{escape(name)}</td><td class="wrap">{escape(_text(value))}</td></tr>'
        for name, value in pairs.items()
    )
    return f'<div class="wide"><table class="pairs">{rows}</table></div>'


def _text(value: object) -> str:
    return number(value) if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _configuration(run_dir: Path) -> str:
    try:
        text = (run_dir / "resolved.yaml").read_text(encoding="utf-8")
    except OSError:
        return ""
    return (
        '<h2>Configuration</h2><details class="box"><summary>resolved.yaml</summary>'
        f"<pre>{escape(text)}</pre></details>"
    )
