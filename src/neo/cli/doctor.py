"""``neo doctor``: a table of what works here, and one verdict."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from neo.doctor.check import Check, State, Verdict, verdict_of
from neo.doctor.examination import examine
from neo.versions import installed_versions

_TIMEOUT_S = 120.0
_STYLES = {State.OK: "green", State.WARN: "yellow", State.FAIL: "bold red"}


def run_doctor(arguments: Sequence[str]) -> int:
    """Run ``neo doctor``; return 0 if neo works here and 1 if not."""
    parser = argparse.ArgumentParser(
        prog="neo doctor",
        description="Try Python, torch, kernels, devices, collectives, disk; one verdict, exit 0 or 1.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object in place of the table")
    parser.add_argument(
        "--timeout", type=float, default=_TIMEOUT_S, metavar="SECONDS", help="limit of each check (default: 120)"
    )
    asked = parser.parse_args(list(arguments))
    checks = examine(Path.cwd(), timeout_s=asked.timeout)
    verdict = verdict_of(checks)
    if asked.json:
        print(_as_json(checks, verdict))
    else:
        _print(checks, verdict, Console())
    return verdict.exit_code


def _as_json(checks: Sequence[Check], verdict: Verdict) -> str:
    content = {
        "works": verdict.works,
        "verdict": verdict.text,
        "fix": verdict.fix,
        "checks": [asdict(check) for check in checks],
        "versions": installed_versions(),
    }
    return json.dumps(content, indent=2)


def _print(checks: Sequence[Check], verdict: Verdict, console: Console) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in checks:
        found = Text(check.found)
        if check.fix:
            found.append(f"\n-> {check.fix}", style="italic")
        table.add_row(Text(check.state.value, style=_STYLES[check.state]), Text(check.name), found)
    console.print(table)
    console.print()
    console.print(Text(verdict.text, style="green" if verdict.works else "bold red"))
    if verdict.fix:
        console.print(Text(f"fix: {verdict.fix}"))
