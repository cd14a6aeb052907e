"""``neo checkpoint show``: what a checkpoint holds, from its manifest and its plan alone."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from neo.checkpoint.folder import find_checkpoint, verify
from neo.checkpoint.manifest import Manifest, TableEntry, read_manifest
from neo.cli.arguments import PATH_HELP, Parser
from neo.cli.reported import reported
from neo.errors import ConfigError
from neo.models.spec import EMBEDDINGS_PATH
from neo.plan.plan_reader import read_plan
from neo.plan.sharding_plan import ShardingPlan
from neo.units import format_bytes, format_count

_WIDTH = 120
_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


def run_checkpoint(arguments: Sequence[str]) -> int:
    """Run ``neo checkpoint show PATH`` and return its exit code.

    Returns:
        0 shown; 2 the arguments are wrong; 1 there is no complete checkpoint, or it is damaged.
    """
    return reported(lambda: _run(arguments))


def _run(arguments: Sequence[str]) -> int:
    parser = Parser(prog="neo checkpoint", allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="what a checkpoint holds", allow_abbrev=False)
    show.add_argument("path", type=Path, help=PATH_HELP)
    show.add_argument("--verify", action="store_true", help="read every file and compare its checksum")
    asked = parser.parse_args(list(arguments))
    return _show(asked.path, verifies=asked.verify)


def _show(asked: Path, *, verifies: bool) -> int:
    path = find_checkpoint(asked)
    manifest = verify(path) if verifies else read_manifest(path)
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDTH)
    num_bytes = sum(entry.num_bytes for entry in manifest.files.values())
    checked = "checksums verified" if verifies else "sizes checked; --verify reads them"
    console.print(f"{path}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{len(manifest.files)} files, {format_bytes(num_bytes)} ({checked})", highlight=False, markup=False)
    plan = _plan(path)
    console.print(_facts(manifest, plan))
    console.print(_tables(manifest.tables, plan))
    return 0


def _plan(path: Path) -> ShardingPlan | None:
    """Return the plan that is kept with a checkpoint, None where there is none that can be read."""
    try:
        return read_plan(path / "plan.json")
    except ConfigError:
        return None


def _facts(manifest: Manifest, plan: ShardingPlan | None) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    facts = manifest.facts
    rows = [
        ("step", str(facts.step)),
        ("epoch", str(facts.epoch)),
        ("samples seen", format_count(facts.samples)),
        ("written by", f"{manifest.world_size} rank{'' if manifest.world_size == 1 else 's'}"),
        ("validation", _metrics(facts.val)),
        ("plan", _plan_in_words(plan, facts.plan_fingerprint)),
        ("data", facts.data_fingerprint or "-"),
        ("versions", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())),
    ]
    for name, value in rows:
        table.add_row(name, value)
    return table


def _metrics(val: Mapping[str, float | None] | None) -> str:
    if val is None:
        return "none at this step"
    return ", ".join(f"{name} {_number(value)}" for name, value in val.items() if isinstance(value, int | float))


def _number(value: float | None) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _plan_in_words(plan: ShardingPlan | None, fingerprint: str) -> str:
    if plan is None:
        return fingerprint or "-"
    return f"{plan.world_size} ranks, {plan.local_world_size} a node" + (f", {fingerprint}" if fingerprint else "")


def _tables(entries: Sequence[TableEntry], plan: ShardingPlan | None) -> Table:
    """Return a table of the tables; a file's worth of columns stays readable without colours."""
    table = Table(box=None, pad_edge=False, header_style="")
    for name in ("table", "rows", "columns", "type", "bytes", "pooling", "optimizer", "states", "sharding"):
        table.add_column(name, justify="right" if name in ("rows", "columns", "bytes") else "left", overflow="fold")
    for entry in entries:
        table.add_row(
            entry.key.removeprefix(f"{EMBEDDINGS_PATH}."),
            f"{entry.num_embeddings:,}",
            str(entry.embedding_dim),
            entry.weights_dtype,
            format_bytes(entry.num_embeddings * entry.embedding_dim * _BYTES[entry.weights_dtype]),
            f"{entry.pooling}, weighted" if entry.weighted else entry.pooling,
            entry.optimizer,
            ", ".join(f"{name} per row" if per_row else name for name, per_row in entry.states.items()) or "none",
            _sharding(entry.key, plan),
        )
    return table


def _sharding(key: str, plan: ShardingPlan | None) -> str:
    if plan is None or key not in plan.tables:
        return "-"
    return plan.tables[key].sharding_type.value
