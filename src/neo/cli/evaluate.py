"""``neo eval``: the metrics of a checkpoint on the validation samples, or on those of another data set."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from neo.checkpoint.job import EVAL_FILE, Job, Task
from neo.cli.arguments import scoring_parser
from neo.cli.reported import reported
from neo.cli.serving import open_checkpoint, score
from neo.config.from_checkpoint import Use
from neo.units import format_count

_ROWS = {
    "auc": "AUC",
    "ne": "normalized entropy",
    "log_loss": "log loss",
    "accuracy": "accuracy",
    "calibration": "calibration",
}


def run_eval(arguments: Sequence[str]) -> int:
    """Run ``neo eval PATH [--out FOLDER] [key=value ...]`` and return its exit code.

    Returns:
        0 done; 2 arguments or configuration are wrong; 3 the tables do not fit; 1 anything else.
    """
    return reported(lambda: _evaluate(arguments))


def _evaluate(arguments: Sequence[str]) -> int:
    parser = scoring_parser("neo eval", "Metrics of a checkpoint on validation samples.")
    parser.add_argument("--out", type=Path, help=f"folder of {EVAL_FILE}; default outputs/eval/DATE_TIME")
    asked = parser.parse_intermixed_args(list(arguments))
    checkpoint = open_checkpoint(asked.path)
    folder = asked.out if asked.out is not None else Path("outputs/eval") / f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
    run_dir = folder.absolute()
    job = Job(Task.EVAL, checkpoint.path, run_dir / EVAL_FILE)
    job.out.unlink(missing_ok=True)
    score(checkpoint, asked.overrides, job, use=Use.EVAL, run_dir=run_dir)
    _print(json.loads(job.out.read_text(encoding="utf-8")))
    print(f"written: {folder / EVAL_FILE}")
    return 0


def _print(found: Mapping[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for key, name in _ROWS.items():
        table.add_row(name, "-" if found[key] is None else f"{found[key]:.4f}")
    table.add_row("samples", format_count(found["samples"]))
    console = Console(file=sys.stdout)
    console.print(table)
    if found["no_auc"] is not None:
        console.print(f"no AUC: {found['no_auc']}", highlight=False)
    for name, count in found["out_of_range"].items():
        console.print(f"table {name}: {count} ids out of range were repaired", highlight=False)
